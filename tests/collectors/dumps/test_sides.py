"""Two files that are surely no pair are refused; whatever may be one is read."""

import os
from threading import Thread

import pytest

from paritas.collectors.dumps.sides import check_sides
from paritas.errors import UsageError

SERVE = '{"sample_id": "a", "token_ids": [5], "logprobs": [-0.5], "logprobs_mode": "raw_logprobs"}\n'
TRAIN = '{"sample_id": "a", "token_ids": [5], "logprobs": [-0.5]}\n'
NEMO = '{"token_ids": [[5]], "generation_logprobs": [[-0.5]], "prev_logprobs": [[-0.5]]}\n'
PRIME = '{"schema_version": 1, "token_ids": [5], "inference_logprobs": [-0.5], "trainer_logprobs": [-0.5]}\n'


def refusal(folder, serve, train):
    """Write both files and return what refuses them, with the folder left out; nothing if they are read."""
    (folder / "serve").write_text(serve)
    (folder / "train").write_text(train)
    try:
        check_sides(folder / "serve", folder / "train")
    except UsageError as error:
        return error.render().replace(f"{folder}/", "")
    return ""


def test_files_in_each_others_place_are_named(tmp_path):
    assert refusal(tmp_path, TRAIN, SERVE) == (
        "[usage] serve and train are in each other's place: the second says its logprobs_mode\n"
        '  hint: the serving side comes first; else let the second say "role": "train" in its lines'
    )


@pytest.mark.parametrize(("dump", "peer"), [(NEMO, "NeMo-RL"), (PRIME, "prime-rl")])
def test_a_dump_of_both_kernels_is_no_side(tmp_path, dump, peer):
    told = f"is a dump of {peer}, which holds both kernels\n  hint: give it alone, with --dump"
    assert refusal(tmp_path, dump, TRAIN) == f"[usage] serve: {told}"
    assert refusal(tmp_path, SERVE, dump) == f"[usage] train: {told}"


@pytest.mark.parametrize(
    ("serve", "train"),
    [
        (SERVE, TRAIN),
        (TRAIN, TRAIN),
        (SERVE, SERVE),  # two samplers
        (TRAIN, SERVE.replace("{", '{"role": "train", ', 1)),
        (TRAIN.replace("{", '{"role": "inference", ', 1), SERVE),
        ("", SERVE),
        ("nonsense", SERVE),
        (TRAIN, ""),
    ],
)
def test_what_may_be_a_pair_is_read(tmp_path, serve, train):
    assert refusal(tmp_path, serve, train) == ""


def test_a_pipe_keeps_its_lines(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "train").write_text(SERVE)
    check_sides(tmp_path / "pipe", tmp_path / "train")
    writer = Thread(target=(tmp_path / "pipe").write_text, args=(TRAIN,))
    writer.start()
    assert (tmp_path / "pipe").read_text() == TRAIN
    writer.join()
