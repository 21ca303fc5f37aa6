"""Data sets by name: what is inside the package, what lies in a folder, and every file that is not what it claims."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas as pd
import pytest
from tools.real_data import needs

import fedsim as fs
from fedsim import readers
from fedsim.data import catalogue, store
from fedsim.errors import CorruptData, InvalidInput, RuntimeFailed


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fedsim"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty FEDSIM_DATA."""
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


# --- Inside the package -----------------------------------------------------------------------------------


def test_digits_need_no_file_and_no_network(folder):
    d = fs.data.load("digits")
    assert (d.name, d.classes, d.shape, d.features) == ("digits", 10, (8, 8), 64)
    assert len(d.x) + len(d.test_x) == 1797
    assert d.x.dtype == np.uint8
    assert d.values(d.x).max() == 1.0
    assert np.bincount(np.concatenate([d.y, d.test_y])).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_breast_cancer_comes_standardised(folder):
    d = fs.data.load("breast-cancer")
    assert len(d.x) + len(d.test_x) == 569
    values = d.values(d.x)
    assert np.allclose(values.mean(axis=0), 0, atol=1e-12)
    assert np.allclose(values.std(axis=0), 1)


def test_what_is_inside_equals_scikit_learns_copy():
    datasets = pytest.importorskip("sklearn.datasets")
    for name, theirs in (("digits", datasets.load_digits()), ("breast-cancer", datasets.load_breast_cancer())):
        d = fs.data.load(name)
        ours = {(row.tobytes(), int(k)) for row, k in zip(np.r_[d.x, d.test_x], np.r_[d.y, d.test_y], strict=True)}
        kind = d.x.dtype
        assert ours == {(r.astype(kind).tobytes(), int(k)) for r, k in zip(theirs.data, theirs.target, strict=True)}


def test_loading_data_imports_nothing_heavy():
    code = "import sys, fedsim as fs; fs.data.load('digits'); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert not {"numba", "pandas", "matplotlib", "pooch", "sklearn", "torch", "ray"} & set(done.stdout.split())


def test_synthetic_users_differ_as_much_as_asked():
    d, equal = fs.data.synthetic(1, 1, seed=3), fs.data.load("synthetic(0, 0)")
    assert d.classes == 10
    assert d.features == 60
    assert len(np.unique(d.ids)) == 30
    assert [len(p) for p in fs.data.natural(d.ids)] == np.bincount(d.ids).tolist()
    assert np.bincount(d.ids).min() >= 45
    spread = [np.std([e.x[e.ids == k].mean() for k in range(30)]) for e in (d, equal)]
    assert spread[0] > 0.5 > spread[1]
    again = fs.data.synthetic(1, 1, seed=3)
    assert again.x.tobytes() == d.x.tobytes()
    same = fs.data.synthetic(5, 5, iid=True)
    assert np.abs([same.x[same.ids == k].mean() for k in range(30)]).max() < 0.2


# --- Real sets, where they are ----------------------------------------------------------------------------

SHAPES = {
    "fashion-mnist": ((60_000, 784), (10_000, 784), np.uint8, 10),
    "mnist": ((60_000, 784), (10_000, 784), np.uint8, 10),
    "cifar10-2class": ((10_000, 3072), (2_000, 3072), np.uint8, 2),
    "covtype": ((464_810, 54), (116_202, 54), np.int16, 7),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs(n)) for n in SHAPES])
def test_real_sets_are_memory_mapped_as_stored(name, cache):
    d = fs.data.load(name)
    train, test, dtype, classes = SHAPES[name]
    assert (d.x.shape, d.test_x.shape, d.x.dtype, d.classes) == (train, test, dtype, classes)
    assert isinstance(d.x, np.memmap)
    assert not d.x.flags.writeable
    values = d.values(d.x[:2000], np.float32)
    assert values.dtype == np.float32
    assert np.abs(values).max() <= (1 if dtype == np.uint8 else 60)
    assert len(list((cache / "arrays").iterdir())) == 1


@needs("credit")
def test_credit_is_prepared_as_perdomo_et_al_do():
    d = fs.data.load("credit")
    assert d.x.shape == (18_357, 11)
    assert np.bincount(d.y).tolist() == [10_000, 8_357]
    assert (d.x[:, -1] == 1).all()
    # Standardised over the 120,269 complete rows, before rows are selected: the selected ones are not centred.
    assert np.abs(d.x[:, :-1].mean(axis=0)).max() > 0.01


def test_covtype_is_the_same_from_arrays_and_from_the_published_table(folder, monkeypatch):
    generator = np.random.default_rng(2)
    x, y = generator.integers(-300, 7000, (40, 54)).astype(np.int16), generator.integers(1, 8, 40).astype(np.uint8)
    held, found = folder / "covtype", []
    held.mkdir()
    entry = catalogue.ENTRIES["covtype"]
    assert entry.otherwise[0].url
    for name in ("covtype.npz", "covtype.data.gz"):
        for old in held.iterdir():
            old.unlink()
        if name.endswith("npz"):
            np.savez(held / name, X=x, y=y)
        else:
            lines = [",".join(map(str, (*row, k))) for row, k in zip(x.tolist(), y.tolist(), strict=True)]
            (held / name).write_bytes(gzip.compress("\n".join(lines).encode()))
        known = (store.File(name, (f"sha256:{store.digest(held / name)}",)),)
        monkeypatch.setitem(
            catalogue.ENTRIES, "covtype",
            replace(entry, files=known) if name.endswith("npz") else replace(entry, otherwise=known),
        )  # fmt: skip
        found.append(fs.data.load("covtype"))
    for part in ("x", "y", "test_x", "test_y", "scale", "shift"):
        a, b = (getattr(d, part) for d in found)
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


# --- Files that are not what they claim -------------------------------------------------------------------


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


@pytest.fixture
def tiny(monkeypatch, folder):
    """A set `tiny` of four IDX files, known to the catalogue by their checksums."""
    generator = np.random.default_rng(1)
    arrays = [generator.integers(0, 256, (n, 4, 4), np.uint8) for n in (30, 10)]
    labels = [generator.integers(0, 3, n, np.uint8) for n in (30, 10)]
    held = [idx(a) for a in (arrays[0], labels[0], arrays[1], labels[1])]
    (folder / "tiny").mkdir()
    known = []
    for i, data in enumerate(held):
        path = folder / "tiny" / f"part{i}.gz"
        path.write_bytes(data)
        known.append(store.File(path.name, (f"sha256:{store.digest(path)}",), None))
    entry = replace(catalogue.ENTRIES["mnist"], folder="tiny", files=tuple(known), classes=3, shape=(4, 4))
    monkeypatch.setitem(catalogue.ENTRIES, "tiny", entry)
    return folder / "tiny", arrays[0].reshape(30, 16)


def test_a_named_folder_is_used_as_it_is(tiny, cache):
    d = fs.data.load("tiny")
    assert np.array_equal(d.x, tiny[1])
    assert isinstance(d.x, np.memmap)
    assert sorted(p.name for p in tiny[0].iterdir()) == [f"part{i}.gz" for i in range(4)]


def test_a_truncated_or_tampered_file_is_refused_with_what_to_do(tiny, cache):
    path = tiny[0] / "part0.gz"
    original = path.read_bytes()
    for data in (original[:-20], original[:50] + bytes([original[50] ^ 1]) + original[51:], b""):
        path.write_bytes(data)
        with pytest.raises(CorruptData, match=r"part0.gz .*truncated or was changed; remove it and fetch it again"):
            fs.data.load("tiny")
    assert not cache.exists() or not list(cache.rglob("*.npy"))


def test_a_missing_file_is_answered_with_where_to_put_it(tiny):
    (tiny[0] / "part2.gz").unlink()
    with pytest.raises(InvalidInput, match=r"put part0.gz.* into .*tiny or .*download=True.*'digits' needs no file"):
        fs.data.load("tiny")
    with pytest.raises(InvalidInput, match="Kaggle"):
        fs.data.load("credit")


def test_a_folder_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InvalidInput, match="no such folder"):
        fs.data.load("mnist")


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(InvalidInput, match=r"unknown; choose among .*fashion-mnist"):
        fs.data.load("imagenet")


def test_a_damaged_cache_is_made_again(tiny, cache):
    fs.data.load("tiny")
    (folder,) = (cache / "arrays").iterdir()
    broken = folder / "x.npy"
    data = bytearray(broken.read_bytes())
    data[-1] ^= 1
    broken.write_bytes(data)
    assert np.array_equal(fs.data.load("tiny").x, tiny[1])
    (folder / "sums.json").write_text(json.dumps(["x"]))
    assert np.array_equal(fs.data.load("tiny").x, tiny[1])


def test_nothing_partial_stays_in_the_cache(tiny, cache, monkeypatch):
    def fail(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(np.lib.format, "write_array", fail)
        with pytest.raises(KeyboardInterrupt):
            fs.data.load("tiny")
    assert list((cache / "arrays").iterdir()) == []


def test_a_cache_that_cannot_be_written_leaves_the_arrays_in_memory(tiny, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert np.array_equal(fs.data.load("tiny").x, tiny[1])


class Code:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


def hostile_npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_an_npz_with_objects_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = hostile_npz(tmp_path / "a.npz", x=np.array([Code()], object), y=np.zeros(1, int))
    with pytest.raises(CorruptData, match="contains Python objects, which are not loaded"):
        fs.data.load(str(path))
    assert not (tmp_path / "pwned").exists()


def test_an_npz_of_ones_own_is_a_data_set(tmp_path):
    x, y = np.arange(24, dtype=np.uint8).reshape(6, 2, 2), np.array([0, 1, 2, 0, 1, 2])
    np.savez_compressed(tmp_path / "mine.npz", x=x, y=y, test_x=x[:2], test_y=y[:2])
    d = fs.data.load(str(tmp_path / "mine.npz"))
    assert (d.name, d.classes, d.shape, d.x.shape) == ("mine", 3, (2, 2), (6, 4))
    assert np.allclose(d.values(d.x), x.reshape(6, 4) / 255)
    with pytest.raises(InvalidInput, match="no such file"):
        fs.data.load(str(tmp_path / "other.npz"))


def npy(header):
    text = f"{header!r}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_hostile_archives_are_refused(tmp_path):
    path = tmp_path / "a.npz"

    def member(data, name="x.npy"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr(name, data)
        with pytest.raises(CorruptData) as caught:
            readers.npz(path, ("x",))
        assert "\n" not in str(caught.value)

    huge = npy({"descr": "<f8", "fortran_order": False, "shape": (2**60,)})
    member(huge)  # announces more than there is: no room is made for it
    member(npy({"descr": "<f8", "fortran_order": False, "shape": (4,)}) + b"\0" * 24)
    member(npy({"descr": "|u1", "fortran_order": False, "shape": (4,)}) + b"\0" * 5)
    member(npy({"descr": "|O", "fortran_order": False, "shape": (1,)}) + b"cos\nsystem\n")
    member(b"cos\nsystem\n(S'true'\ntR.")
    member(b"\x93NUMPY\x01\x00\x10\x00__import__('os')")
    member(b"", "../x.npy")
    path.write_bytes(b"PK\x03\x04 rubbish")
    with pytest.raises(CorruptData):
        readers.npz(path, ("x",))


def test_a_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"\0" * 2_000_000))
    with pytest.raises(CorruptData, match="more than 1,000,000 bytes"):
        readers.unpack(path, 1_000_000)
    for bad in (b"no gzip", gzip.compress(b"some")[:-6], idx(np.zeros((3, 2), np.uint8))[:20]):
        path.write_bytes(bad)
        with pytest.raises(CorruptData):
            readers.idx(path)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + b"\xff" * 12))
    with pytest.raises(CorruptData, match="announces shape"):
        readers.idx(path)


def test_a_tar_archive_is_read_by_name_and_never_extracted(tmp_path):
    path = tmp_path / "a.tar.gz"

    def archive(**members):
        with tarfile.open(path, "w:gz") as tar:
            for name, (kind, data) in members.items():
                info = tarfile.TarInfo(name)
                info.type, info.size, info.linkname = kind, len(data), "/etc/passwd"
                tar.addfile(info, io.BytesIO(data))

    archive(a=(tarfile.REGTYPE, b"1234"), evil=(tarfile.SYMTYPE, b""))
    assert readers.tar_members(path, ("a",), 4) == [b"1234"]
    assert list(tmp_path.iterdir()) == [path]
    archive(a=(tarfile.SYMTYPE, b""))
    with pytest.raises(CorruptData, match="not a plain file of 4 bytes"):
        readers.tar_members(path, ("a",), 4)
    archive(b=(tarfile.REGTYPE, b"1234"))
    with pytest.raises(CorruptData, match="lacks a"):
        readers.tar_members(path, ("a",), 4)
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(CorruptData, match="cannot be unpacked"):
        readers.tar_members(path, ("a",), 4)


def test_the_binary_form_of_cifar10_is_decoded_channel_by_channel(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "CIFAR_ROWS", 10)
    path = tmp_path / "cifar.tar.gz"
    row = np.concatenate([[7], np.full(1024, 1), np.full(1024, 2), np.full(1024, 3)]).astype(np.uint8)
    data = np.tile(row, 10).tobytes()
    with tarfile.open(path, "w:gz") as tar:
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    a = catalogue.ENTRIES["cifar10"].decode([path])
    assert a["x"].shape == (50, 3072)
    assert a["test_x"].shape == (10, 3072)
    assert (a["x"].reshape(-1, 32, 32, 3)[0, 0, 0] == [1, 2, 3]).all()
    assert (a["y"] == 7).all()


# --- Downloads --------------------------------------------------------------------------------------------


@pytest.fixture
def served(tiny, tmp_path, monkeypatch):
    """`tiny` moved from the folder to a server on this machine; yields its requests and the served folder."""
    pytest.importorskip("pooch")
    site, seen = tmp_path / "site", []
    tiny[0].rename(site)

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            super().do_GET()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    entry = catalogue.ENTRIES["tiny"]
    at = f"http://127.0.0.1:{server.server_port}/"
    known = tuple(replace(f, url=at + f.name, most=100_000) for f in entry.files)
    monkeypatch.setitem(catalogue.ENTRIES, "tiny", replace(entry, files=known))
    yield seen, site, tiny[1]
    server.shutdown()
    server.server_close()


def test_files_are_downloaded_once_and_only_when_asked_for(served, cache):
    seen, _, x = served
    with pytest.raises(InvalidInput, match="download=True"):
        fs.data.load("tiny")
    assert seen == []
    assert np.array_equal(fs.data.load("tiny", download=True).x, x)
    assert np.array_equal(fs.data.load("tiny").x, x)
    assert seen == [f"/part{i}.gz" for i in range(4)]


def test_a_tampered_download_is_refused_and_does_not_stay(served, cache, monkeypatch):
    _, site, _ = served
    monkeypatch.setattr(store, "TRIES", 0)
    (site / "part1.gz").write_bytes(b"something else")
    with pytest.raises(CorruptData, match=r"returned another file than part1\.gz"):
        fs.data.load("tiny", download=True)
    assert [p.name for p in (cache / "files" / "tiny").iterdir()] == ["part0.gz"]


def test_a_download_has_a_size_and_a_total_time(served, cache, monkeypatch):
    _, site, _ = served
    with monkeypatch.context() as late:
        late.setattr(store, "TOTAL_S", -1.0)
        with pytest.raises(RuntimeFailed, match=r"part0\.gz takes longer than"):
            fs.data.load("tiny", download=True)
    (site / "part0.gz").write_bytes(bytes(10**7))
    with pytest.raises(CorruptData, match=r"part0\.gz sends more than the 100,000 bytes"):
        fs.data.load("tiny", download=True)
    assert not list(cache.rglob("*part*"))


def test_every_file_has_a_sha256_and_every_download_a_size():
    files = [file for entry in catalogue.ENTRIES.values() for file in (*entry.files, *entry.otherwise)]
    for file in files:
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", digest) for digest in file.digests)
        assert not file.url or 10_000_000 <= file.most <= 200_000_000


def test_without_a_network_the_error_has_a_remedy(tiny, cache, monkeypatch):
    pytest.importorskip("pooch")
    monkeypatch.setattr(store, "TRIES", 0)
    (tiny[0] / "part3.gz").unlink()
    entry = catalogue.ENTRIES["tiny"]
    closed = tuple(replace(f, url=f"http://127.0.0.1:9/{f.name}") for f in entry.files)
    monkeypatch.setitem(catalogue.ENTRIES, "tiny", replace(entry, files=closed))
    with pytest.raises(RuntimeFailed, match=r"cannot be reached .*go online, or put part3.gz into"):
        fs.data.load("tiny", download=True)
    assert not list(cache.rglob("part*"))


# --- Data of one's own ------------------------------------------------------------------------------------


def test_a_pandas_frame_is_a_data_set():
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 0.5, 1], "who": ["x", "y", "x"], "kind": ["cat", "dog", "cat"]})
    d = fs.data.from_frame(frame, "kind", ids="who")
    assert d.x.tolist() == [[1, 0.5], [2, 0.5], [3, 1]]
    assert d.y.tolist() == [0, 1, 0]
    assert [p.tolist() for p in fs.data.natural(d.ids)] == [[0, 2], [1]]
    with pytest.raises(InvalidInput, match="'who' is not numeric"):
        fs.data.from_frame(frame, "kind")
    with pytest.raises(InvalidInput, match="no column 'size'"):
        fs.data.from_frame(frame, "size")
    with pytest.raises(InvalidInput, match="labels in 'kind' that the frame does not have"):
        fs.data.from_frame(frame.drop(columns="who"), "kind", test=frame.assign(kind="cow").drop(columns="who"))


class Split(dict):
    """As much of `datasets.Dataset` as is used."""

    column_names = property(lambda self: list(self))

    def with_format(self, kind):
        assert kind == "numpy"
        return self


def test_a_hugging_face_data_set_is_a_data_set():
    rows = Split(image=np.zeros((4, 2, 2), np.uint8), label=np.array([0, 1, 1, 2]))
    d = fs.data.from_huggingface({"train": rows, "test": rows})
    assert (d.x.shape, d.test_x.shape, d.shape, d.classes) == ((4, 4), (4, 4), (2, 2), 3)
    with pytest.raises(InvalidInput, match="choose with"):
        fs.data.from_huggingface({"train": Split(a=[1])})


def test_classes_can_be_picked_out():
    d = fs.data.load("digits").only(3, 8)
    assert d.classes == 2
    assert set(d.y) == {0, 1}
    assert (d.y == 0).sum() == (fs.data.load("digits").y == 3).sum()
    with pytest.raises(InvalidInput, match="at least two"):
        fs.data.load("digits").only(3)


WRONG = {
    "one label each": lambda: fs.data.Dataset(np.ones((3, 2)), np.zeros(2, int), None, None, 2, "d"),
    "from 0 to 1": lambda: fs.data.from_arrays(np.ones((3, 2)), [0, 1, 2], classes=2),
    "make them agree": lambda: fs.data.from_arrays(np.ones((3, 2)), [0, 1, 1], np.ones((1, 3)), [0]),
    "all rows of one shape": lambda: fs.data.from_arrays([[1, 2], [3]], [0, 1]),
    "must be integers": lambda: fs.data.from_arrays(np.ones((2, 2)), [0.5, 1]),
}


@pytest.mark.parametrize("message", WRONG)
def test_arrays_that_do_not_fit_are_refused(message):
    with pytest.raises(InvalidInput, match=message):
        WRONG[message]()
