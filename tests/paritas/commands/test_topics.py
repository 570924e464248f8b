"""`paritas topics`: what a person can get wrong without a broker."""

import pytest

from paritas.cli import main

pytest.importorskip("kafka", reason="kafka-python is not installed (pip install 'paritas[kafka]')")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--retention", "3 days"], "--retention '3 days' is no duration\n  hint: write 12h or 3d\n"),
        (["--partitions", "0"], "partitions is 0, expected at least 1\n"),
        (["--replicas", "0"], "--replicas is 0, expected at least 1\n"),
    ],
    ids=["retention", "partitions", "replicas"],
)
def test_mistakes_are_one_clear_error(arguments, says, capsys):
    assert main(["topics", "--kafka", "127.0.0.1:9092", *arguments]) == 64
    assert capsys.readouterr().err == f"[usage] {says}"


def test_a_place_that_is_neither_address_nor_file_is_one_clear_error(capsys):
    assert main(["topics", "--kafka", "nowhere"]) == 64
    assert capsys.readouterr().err == (
        "[usage] 'nowhere' is neither HOST:PORT nor a file\n"
        "  hint: write kafka-0.kafka:9092, or the path of a file with a `kafka:` section\n"
    )
