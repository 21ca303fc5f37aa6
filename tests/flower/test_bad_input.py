"""What cannot be run is refused in one sentence that says what to do."""

from __future__ import annotations

import pytest

import fedsim as fs

PROJECT = '[project]\nname = "x"\nversion = "1"\n'


def folder(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    return tmp_path


def test_a_path_without_an_app(tmp_path):
    with pytest.raises(fs.errors.InvalidInput, match=r"has no pyproject.toml; give the folder of a Flower app"):
        fs.flower.run(tmp_path, nodes=2)
    with pytest.raises(fs.errors.InvalidInput, match="is no TOML"):
        fs.flower.run(folder(tmp_path, "= 3"), nodes=2)


@pytest.mark.parametrize(
    "components",
    ["", '[tool.flwr.app.components]\nserverapp = "a.b:app"\n', '[tool.flwr.app.components]\nserverapp = "a"\n'],
)
def test_missing_components(tmp_path, components):
    with pytest.raises(fs.errors.InvalidInput, match=r"has no (server|client)app; write"):
        fs.flower.run(folder(tmp_path, PROJECT + components), nodes=2)


BOTH = PROJECT + '[tool.flwr.app.components]\nserverapp = "absent.code:app"\nclientapp = "absent.code:app"\n'


def test_modules_and_attributes_that_are_not_there(tmp_path):
    with pytest.raises(fs.errors.InvalidInput, match=r"there is no module absent\.code"):
        fs.flower.run(folder(tmp_path, BOTH), nodes=2)
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "code.py").write_text("other = 1\n")
    with pytest.raises(fs.errors.InvalidInput, match=r"module absent\.code has no app"):
        fs.flower.run(tmp_path, nodes=2)
    (tmp_path / "absent" / "code.py").write_text("app = 1\n")
    with pytest.raises(fs.errors.InvalidInput, match="1 is no ServerApp"):
        fs.flower.run(tmp_path, nodes=2)
    (tmp_path / "absent" / "code.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(fs.errors.InvalidInput, match=r"importing absent\.code failed: ModuleNotFoundError"):
        fs.flower.run(tmp_path, nodes=2)


def test_an_unknown_setting_and_unknown_numbers_of_nodes(apps, tmp_path):
    with pytest.raises(fs.errors.InvalidInput, match="has no setting rounds; its settings are: features, "):
        fs.flower.run(apps / "numpy_fedavg", set={"rounds": 3})
    with pytest.raises(fs.errors.InvalidInput, match="no num-supernodes"):
        fs.flower.run(folder(tmp_path, BOTH))
    with pytest.raises(fs.errors.InvalidInput, match="nodes=0"):
        fs.flower.run(apps / "numpy_fedavg", nodes=0)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"work": "fast"}, "work='fast'"), ({"node_config": 3}, "node_config=3"), ({"codec": "zip"}, "codec='zip'"),
        ({"runtime": "ray"}, "runtime='ray'"), ({"timing_only": True}, "timing_only=True"),
        ({"clock": "compiled"}, "clock='compiled'"), ({"seed": -1}, "seed=-1"),
    ],
)  # fmt: skip
def test_arguments_that_mean_nothing(apps, given, text):
    with pytest.raises(fs.errors.InvalidInput, match=text):
        fs.flower.run(apps / "numpy_fedavg", **given)


def test_a_network_of_another_size(apps, star):
    with pytest.raises(fs.errors.InvalidInput, match="5"):
        fs.flower.run(apps / "numpy_fedavg", network=star(5))


def test_a_server_that_raises_is_named_with_its_line(app_of):
    def server(grid, context):
        raise KeyError("arrays")

    with pytest.raises(fs.errors.InvalidInput, match=r"the ServerApp raised KeyError: 'arrays' \(test_bad_input.py:"):
        fs.flower.run(app_of(server, None), nodes=2)


def test_a_message_to_a_node_that_does_not_exist(app_of):
    from flwr.app import Message, RecordDict

    def server(grid, context):
        grid.push_messages([Message(RecordDict(), 5, "train")])

    with pytest.raises(fs.errors.InvalidInput, match="node 5, which does not exist"):
        fs.flower.run(app_of(server, None), nodes=2)
