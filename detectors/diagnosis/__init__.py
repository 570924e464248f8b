"""Diagnosis: what a slice's recent pairs look like, and which cause looks like that."""

from paritas.detectors.diagnosis.causes import Cause, diagnose
from paritas.detectors.diagnosis.features import Features
from paritas.detectors.diagnosis.fingerprint import FIELDS, Fingerprint, Recent, fingerprints

__all__ = ["FIELDS", "Cause", "Features", "Fingerprint", "Recent", "diagnose", "fingerprints"]
