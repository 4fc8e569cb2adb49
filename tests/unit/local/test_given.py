"""The launcher's reading of the environment."""

from pathlib import Path

import pytest

from deploy.local.given import Given, SettingWrong


def test_a_value_comes_from_the_variable_or_its_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from file\n")
    given = Given(
        {
            "COATCHECK_A": "plain",
            "COATCHECK_B_FILE": str(tmp_path / "secret"),
            "COATCHECK_C": "",
        }
    )
    assert (given.text("A"), given.text("B")) == ("plain", "from file")
    assert given.text("C") is None
    assert given.required("A", "it is") == "plain"


def test_both_at_once_are_refused(tmp_path: Path) -> None:
    given = Given({"COATCHECK_A": "x", "COATCHECK_A_FILE": str(tmp_path)})
    with pytest.raises(SettingWrong, match="COATCHECK_A and COATCHECK_A_FILE are both set"):
        given.text("A")


def test_a_file_that_cannot_be_read_names_its_variable(tmp_path: Path) -> None:
    with pytest.raises(SettingWrong, match=r"COATCHECK_A_FILE: .* cannot be read"):
        Given({"COATCHECK_A_FILE": str(tmp_path / "missing")}).text("A")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingWrong, match="COATCHECK_A_FILE"):
        Given({"COATCHECK_A_FILE": str(tmp_path / "bytes")}).text("A")


def test_a_missing_value_says_why_it_is_needed() -> None:
    with pytest.raises(SettingWrong, match="COATCHECK_A is missing: something needs it"):
        Given({}).required("A", "something needs it")


@pytest.mark.parametrize(("text", "flag"), [("1", True), ("Yes", True), ("off", False), ("", None)])
def test_flags(text: str, flag: bool | None) -> None:
    assert Given({"COATCHECK_A": text}).flag("A") is flag


def test_a_flag_that_is_none_names_its_variable() -> None:
    with pytest.raises(SettingWrong, match="COATCHECK_A: must be true or false"):
        Given({"COATCHECK_A": "perhaps"}).flag("A")


def test_numbers() -> None:
    assert Given({"COATCHECK_A": "2.5"}).number("A", 1, 1000) == 2.5
    assert Given({}).number("A", 1, 1000) is None


@pytest.mark.parametrize("text", ["-1", "0", "5000", "x", "nan"])
def test_a_number_that_is_none_or_too_far_names_its_variable(text: str) -> None:
    with pytest.raises(SettingWrong, match="COATCHECK_A: must be a number, 1 to 1000"):
        Given({"COATCHECK_A": text}).number("A", 1, 1000)


def test_children_find_relative_files_where_the_caller_meant_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    given = Given({"COATCHECK_ENDPOINTS_FILE": "mine.toml", "COATCHECK_A_FILE": "a", "B_FILE": "b"})
    assert given.for_children() == {
        "COATCHECK_ENDPOINTS_FILE": str(tmp_path / "mine.toml"),
        "COATCHECK_A_FILE": str(tmp_path / "a"),
        "B_FILE": "b",
    }
