"""Diagnosis: what a slice's recent pairs look like, and which cause looks like that."""

from paritas.detectors.diagnosis.causes import Cause
from paritas.detectors.diagnosis.diagnose import diagnose
from paritas.detectors.diagnosis.features import Features
from paritas.detectors.diagnosis.fingerprint import FIELDS, Fingerprint, Recent, fingerprints
from paritas.detectors.diagnosis.whereabouts import Whereabouts

__all__ = ["FIELDS", "Cause", "Features", "Fingerprint", "Recent", "Whereabouts", "diagnose", "fingerprints"]
