"""The access file: tokens, roles, and every line that is wrong."""

import json
import os

import pytest

from paritas.controller.access.grants import _is_open, add_grant, load_grants
from paritas.controller.access.roles import Role, may, needed_by
from paritas.errors import UsageError

HASH = "0" * 64


def written(tmp_path, *lines, mode=0o600):
    path = tmp_path / "access.jsonl"
    path.write_text("\n".join(lines) + "\n")
    path.chmod(mode)
    return path


def test_a_token_is_shown_once_and_only_its_hash_is_kept(tmp_path):
    path = tmp_path / "access.jsonl"
    token = add_grant(path, "router-1", Role.ACTOR)
    assert add_grant(path, "pager", Role.SUBSCRIBER, subject="pager.example") == ""
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    grants = load_grants(path)
    assert grants.by_token(token).name == "router-1"
    assert grants.by_token(token[:-1]) is grants.by_token("") is None
    assert grants.by_subjects(["x", "pager.example"]).role is Role.SUBSCRIBER
    assert grants.by_subjects([""]) is None, "a grant by token has no subject to match"


def test_comments_and_blank_lines_are_allowed(tmp_path):
    path = written(tmp_path, "# who may", "", json.dumps({"name": "a", "role": "admin", "subject": "a"}))
    assert [grant.name for grant in load_grants(path).grants] == ["a"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ('{"role": "admin"}', "'name' is missing"),
        ('{"name": "a", "role": "root", "subject": "x"}', "'root' is not a valid Role"),
        ('{"name": "a", "role": "admin"}', "give either token_sha256 or subject"),
        (
            f'{{"name": "a", "role": "admin", "token_sha256": "{HASH}", "subject": "x"}}',
            "give either token_sha256 or subject",
        ),
        (
            '{"name": "a", "role": "admin", "token_sha256": "abc"}',
            "token_sha256 is not 64 hex digits in lower case",
        ),
        ('{"name": "a", "role": "admin", "token": "x"}', "unknown field 'token'"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(tmp_path, line, why):
    path = written(tmp_path, "# first", line)
    with pytest.raises(UsageError) as refused:
        load_grants(path)
    assert str(refused.value) == f"{path}:2: not a grant: {why}"


def test_a_file_that_others_may_read_is_refused(tmp_path):
    path = written(tmp_path, "", mode=0o640)
    with pytest.raises(UsageError) as refused:
        load_grants(path)
    assert (str(refused.value), refused.value.hint) == (
        f"access file {str(path)!r} is open to others",
        f"chmod 600 {path}",
    )


def test_a_file_that_is_not_there_and_a_name_that_is(tmp_path):
    with pytest.raises(UsageError, match=r"^cannot read access file '.*/no': No such file or directory$"):
        load_grants(tmp_path / "no")
    path = tmp_path / "access.jsonl"
    add_grant(path, "a", Role.ADMIN)
    with pytest.raises(UsageError) as refused:
        add_grant(path, "a", Role.ACTOR)
    assert str(refused.value) == f"access file {str(path)!r}: 'a' is there already"


def test_roles_contain_each_other_and_an_unlisted_method_takes_the_most():
    assert [may(held, Role.ACTOR) for held in Role] == [False, True, True]
    assert may(Role.SUBSCRIBER, None)
    assert needed_by("/paritas.proto.v1.EscalationService/Whatever") is Role.ADMIN
    assert needed_by("/grpc.health.v1.Health/Check") is None


@pytest.mark.parametrize(
    ("mode", "owner", "own_uid", "is_open"),
    [
        (0o440, 0, 65532, False),  # a secret of Kubernetes: root's, and the pod's group reads it
        (0o444, 0, 65532, True),
        (0o460, 0, 65532, True),
        (0o440, 65532, 65532, True),
        (0o440, 1000, 65532, True),
        (0o440, 0, 0, True),
        (0o400, 0, 0, False),
    ],
)
def test_a_group_may_read_only_what_root_hands_to_it(mode, owner, own_uid, is_open):
    status = os.stat_result((0o100000 | mode, 1, 1, 1, owner, 65532, 0, 0, 0, 0))
    assert _is_open(status, own_uid) is is_open
