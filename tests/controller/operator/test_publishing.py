"""What the ConfigMap shall hold: pure, so every case is a value."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritas.controller.operator.items import Reader, item_of
from paritas.controller.operator.model import FIELD_MANAGER, Plan, Why
from paritas.controller.operator.publishing import (
    Existing,
    apply_body,
    existing_of,
    is_current,
    publish,
    withheld,
)

PLAN = Plan("serving", "paritas-contracts")


def thing(name="a", *, limit=0.02, version="1.0.0", created="2026-01-01T00:00:00Z", **spec):
    clause = {"id": "token-tv", "statistic": "tv", "at_most": limit}
    return {
        "metadata": {
            "name": name,
            "namespace": "serving",
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": created,
            "annotations": {"paritas.dev/version": version},
        },
        "spec": {"clauses": {"numerical": [clause]}, **spec},
    }


def item(name="a", **changes):
    return item_of(thing(name, **changes))


BAD = {"preset": "none"}


def config_map(data, *, ours, owners=()):
    fields = {"f:data": {".": {}, **{f"f:{key}": {} for key in ours}}}
    entry = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}
    references = [{"uid": uid} for uid in owners]
    return {"metadata": {"managedFields": [entry], "ownerReferences": references}, "data": data}


def test_no_config_map_is_made_for_nothing():
    assert is_current(Existing(), [], {})
    bad = item(**BAD)
    found = publish([bad], Existing())
    assert (found[bad.uid].text, is_current(Existing(), [bad], found)) == ("", True)


def test_a_good_item_is_published_and_then_current():
    good = item()
    found = publish([good], Existing())
    assert found[good.uid].is_latest
    body = apply_body(PLAN, "serving", Existing(), [good], found)
    assert body["data"] == {"a.yaml": good.text}
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "paritas.dev/v1", "kind": "KernelContract", "name": "a", "uid": "uid-a"}
    ]
    existing = existing_of(config_map(body["data"], ours=["a.yaml"], owners=["uid-a"]))
    assert is_current(existing, [good], publish([good], existing))


def test_a_bad_item_keeps_the_text_that_was_accepted_last():
    before = item()
    existing = existing_of(config_map({"a.yaml": before.text}, ours=["a.yaml"], owners=["uid-a"]))
    bad = item(**BAD)
    found = publish([bad], existing)[bad.uid]
    assert (found.text, found.contract.digest, found.is_latest, found.held) == (
        before.text,
        before.contract.digest,
        False,
        None,
    )
    assert is_current(existing, [bad], publish([bad], existing))


def test_a_deleted_item_leaves_and_its_config_map_is_no_longer_current():
    existing = existing_of(config_map({"a.yaml": "x"}, ours=["a.yaml"]))
    assert not is_current(existing, [], {})
    assert apply_body(PLAN, "serving", existing, [], {})["data"] == {}


def test_keys_of_others_are_counted_and_never_written():
    existing = existing_of(config_map({"a.yaml": "by hand", "b.yaml": "x"}, ours=["b.yaml"]))
    assert (existing.others, existing.others_bytes) == ({"a.yaml"}, len("a.yamlby hand"))
    items = [item("a"), item("b")]
    found = publish(items, existing)
    assert (found["uid-a"].held, found["uid-a"].detail) == (
        Why.KEY_TAKEN,
        "a.yaml of the ConfigMap is somebody else's",
    )
    body = apply_body(PLAN, "serving", existing, items, found)
    assert (set(body["data"]), body["metadata"]["ownerReferences"]) == ({"b.yaml"}, [])


def test_where_space_is_short_what_is_there_stays_and_the_older_object_goes_first():
    old, new = item("old", created="2026-01-01T00:00:00Z"), item("new", created="2026-01-02T00:00:00Z")
    size = len(old.text) + len(old.key)
    found = publish([new, old], Existing(), limit_bytes=size)
    assert (found[old.uid].is_latest, found[new.uid].held) == (True, Why.CONFIG_MAP_FULL)
    assert found[new.uid].detail == f"the ConfigMap would hold more than {size} bytes with this contract"
    existing = existing_of(config_map({"new.yaml": new.text}, ours=["new.yaml"]))
    found = publish([new, old], existing, limit_bytes=size)
    assert (found[new.uid].is_latest, found[old.uid].held) == (True, Why.CONFIG_MAP_FULL)


def test_a_refused_config_map_leaves_everybody_with_what_was_there():
    before, after, same = item("a"), item("a", limit=0.03), item("b")
    existing = existing_of(
        config_map({"a.yaml": before.text, "b.yaml": same.text}, ours=["a.yaml", "b.yaml"])
    )
    items = [after, same]
    found = withheld(items, existing, publish(items, existing), "no")
    assert (found["uid-a"].text, found["uid-a"].held, found["uid-a"].detail) == (
        before.text,
        Why.CONFIG_MAP_REFUSED,
        "no",
    )
    assert found["uid-b"].is_latest


@pytest.mark.parametrize("name", ["data", "binaryData"])
def test_a_config_map_without_a_manager_is_somebody_elses(name):
    existing = existing_of({"metadata": {}, name: {"a.yaml": "eA=="}})
    assert (existing.ours, existing.others, existing.is_there) == ({}, {"a.yaml"}, True)


SIZES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40), st.booleans()), max_size=6)


@settings(deadline=None, max_examples=60)
@given(SIZES, st.integers(0, 120))
def test_the_limit_is_never_passed_and_nothing_that_fits_is_withheld_alone(sizes, limit):
    items = [item(f"n{i}") for i in range(len(sizes))]
    items = [_sized(one, size) for one, (size, _, _) in zip(items, sizes, strict=True)]
    kept = {f"n{i}.yaml": "y" * old for i, (_, old, _) in enumerate(sizes) if old}
    before = sum(len(key) + len(text) for key, text in kept.items())
    bound = max(limit, before)
    found = publish(items, Existing(kept, is_there=True), limit_bytes=bound)
    used = sum(len(i.key) + len(found[i.uid].text) for i in items if found[i.uid].text)
    assert used <= bound
    for one in items:
        alone = found[one.uid].held is Why.CONFIG_MAP_FULL
        assert not alone or found[one.uid].text == kept.get(one.key, "")


def _sized(one, size):
    return replace(one, text="x" * size)


def test_an_object_is_loaded_again_only_when_its_text_has_changed():
    reader = Reader()
    (first,) = reader.items([thing()])
    (again,) = reader.items([{**thing(), "status": {"digest": "d"}}])
    assert again.contract is first.contract
    assert again.status == {"digest": "d"}
    (changed,) = reader.items([thing(version="1.0.1")])
    assert changed.contract.version == "1.0.1"
    assert reader.items([]) == []
