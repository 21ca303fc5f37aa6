"""Tests that need files from outside are skipped only where no folder is named."""

from __future__ import annotations

import pytest
from tools.real_data import VARIABLES, find


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("unset", [True, False])
def test_a_test_is_skipped_where_no_folder_is_named(variable, unset, monkeypatch):
    monkeypatch.delenv(variable, raising=False) if unset else monkeypatch.setenv(variable, "")
    with pytest.raises(pytest.skip.Exception, match=f"{variable} is not set"):
        find(variable, "some.json")


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("folder", [".", "nowhere"])
def test_a_test_fails_where_the_folder_lacks_its_file(variable, folder, monkeypatch, tmp_path):
    monkeypatch.setenv(variable, str(tmp_path / folder))
    with pytest.raises(pytest.fail.Exception, match=r"there is no some\.json in it"):
        find(variable, "some.json")


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_file_is_found_in_the_folder_that_is_named(variable, monkeypatch, tmp_path):
    monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / "some.json").write_text("{}")
    assert find(variable, "some.json") == tmp_path / "some.json"
