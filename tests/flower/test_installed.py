"""flwr may be missing, or too old."""

from __future__ import annotations

from importlib import metadata

import pytest

import fedsim as fs


@pytest.mark.parametrize(
    ("found", "text"),
    [(None, r"not installed: pip install 'fedsim-systems\[flower\]'"), ("1.20.0", "1.20.0 is too old")],
)
def test_flwr_is_missing_or_too_old(monkeypatch, tmp_path, found, text):
    def version(name):
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(fs.errors.InvalidInput, match=text):
        fs.flower.run(tmp_path, nodes=2)
