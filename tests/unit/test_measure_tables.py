"""Reading label counts: what is accepted, what is handled and said, what is refused."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from fedskew.errors import DataError, FedskewError, SignalError
from fedskew.measure import Counts, read_counts

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

LONG = "client,label,count\na,cat,3\na,dog,1\nb,dog,4\n"
WIDE = "client,cat,dog\na,3,1\nb,0,4\n"


@pytest.fixture
def write(tmp_path):
    def to_file(text: str | bytes, name: str = "counts.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return to_file


def error_of(path, **options) -> str:
    with pytest.raises(FedskewError) as caught:
        read_counts(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def same(one: Counts, other: Counts) -> bool:
    return (
        np.array_equal(one.table, other.table)
        and [*one.clients] == [*other.clients]
        and [*one.labels] == [*other.labels]
    )


# ---------------------------------------------------------------- what is accepted


def test_long_and_wide_give_the_same_counts(write):
    long, wide = read_counts(write(LONG)), read_counts(write(WIDE, "wide.csv"))
    assert same(long, wide)
    assert long.table.tolist() == [[3, 1], [0, 4]]
    assert (list(long.clients), list(long.labels)) == (["a", "b"], ["cat", "dog"])


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_other_delimiters(write, delimiter):
    assert same(
        read_counts(write(LONG.replace(",", delimiter))), read_counts(write(LONG, "comma.csv"))
    )


def test_gzip_byte_order_mark_capitals_and_blanks(write):
    plain = read_counts(write(LONG))
    assert same(read_counts(write(gzip.compress(LONG.encode()), "zipped")), plain)
    assert same(read_counts(write("\ufeff" + LONG, "bom.csv")), plain)
    assert same(
        read_counts(write("Client, Label,Count\n a ,cat, 3\na,dog ,1\nb,dog,4\n", "blanks.csv")),
        plain,
    )


def test_names_stay_as_written(write):
    counts = read_counts(write("client,label,count\n007,[red]x[/],1\nNA,<b>&,2\n7,10,3\n7,9,4\n"))
    assert list(counts.clients) == ["007", "NA", "7"]
    assert list(counts.labels) == ["9", "10", "<b>&", "[red]x[/]"]  # numbers as numbers, then text


@pytest.mark.parametrize("form", ["long", "wide"])
def test_parquet(tmp_path, form):
    columns = (
        {"client": ["a", "a", "b"], "label": ["cat", "dog", "dog"], "count": [3, 1, 4]}
        if form == "long"
        else {"client": ["a", "b"], "cat": [3, 0], "dog": [1.0, 4.0]}
    )
    pq.write_table(pa.table(columns), tmp_path / "counts")
    assert read_counts(tmp_path / "counts").table.tolist() == [[3, 1], [0, 4]]


def test_pandas_parquet_with_integer_ids(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"client": [5, 5, 2], "label": [0, 1, 1], "count": [3, 1, 4]}, index=[7, 8, 9]
    )
    frame.to_parquet(tmp_path / "a.parquet")
    counts = read_counts(tmp_path / "a.parquet")
    assert (list(counts.clients), list(counts.labels)) == (["5", "2"], ["0", "1"])
    assert counts.table.tolist() == [[3, 1], [0, 4]]


def test_columns_can_be_named_and_the_form_forced(write):
    path = write("who,what,many,extra\na,cat,3,x\nb,dog,4,y\n")
    counts = read_counts(path, client_column="who", label_column="what", count_column="many")
    assert counts.table.tolist() == [[3, 0], [0, 4]]
    assert "1 column not read: 'extra'" in counts.notes
    odd = read_counts(write("client,label,count\n1,2,3\n2,5,6\n", "odd.csv"), form="wide")
    assert (odd.table.tolist(), list(odd.labels)) == ([[2, 3], [5, 6]], ["label", "count"])
    rows = read_counts(write("cat,dog\n1,2\n3,4\n", "rows.csv"), client_column="none", form="wide")
    assert (rows.table.tolist(), list(rows.clients)) == ([[1, 2], [3, 4]], ["0", "1"])


def test_what_is_handled_is_said(write):
    counts = read_counts(write("client,label,count\na,x,1\nb,y,0\na,x,2\na,z,4\n"))
    assert counts.table.tolist() == [[3, 4], [0, 0]]
    assert counts.notes == (
        "1 row repeats a (client, label) pair: its count is added",
        "1 label without examples left out: 'y'",
        "1 client without examples left out: 'b'",
    )


def test_a_column_of_sums_is_no_label(write):
    counts = read_counts(write("client,cat,dog,total\na,3,1,4\nb,0,4,4\n"))
    assert (list(counts.labels), counts.notes) == (
        ["cat", "dog"],
        ("column 'total' is the sum of the others: left out",),
    )
    assert len(read_counts(write("client,cat,dog,total\na,3,1,5\nb,0,4,4\n", "no.csv")).labels) == 3


def test_whole_numbers_written_as_decimals_are_counts(write):
    assert read_counts(write("client,cat,dog\na,3.0,1e2\n")).table.tolist() == [[3, 100]]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,label,count\na,cat,-1\n", "client 'a', label 'cat': the count is negative (-1)"),
        (
            "client,label,count\na,cat,1.5\n",
            "client 'a', label 'cat': the count is a fraction (1.5)",
        ),
        ("client,label,count\na,cat,1\nb,cat,\n", "client 'b', label 'cat': the count is missing"),
        ("client,label,count\na,cat,nan\n", "missing or not a finite number"),
        ("client,label,count\na,cat,inf\n", "missing or not a finite number"),
        ("client,label,count\na,cat,1e17\n", "too large"),
        ("client,label,count\na,cat,many\n", "column 'count' holds 'many', not a count"),
        ("client,label,count\n,cat,1\n", "row 1 has no client"),
        ("client,label,count\na,,1\n", "row 1 has no label"),
        ("client,label,count\na,cat,0\n", "every count is 0"),
        ("client,cat,dog\na,1,-2\n", "client 'a', label 'dog': the count is negative (-2)"),
        (
            "client,cat,dog\na,1,2\nb,0.5,2\n",
            "client 'b', label 'cat': the count is a fraction (0.5)",
        ),
        ("client,cat,dog\na,1,2\nb,,2\n", "client 'b', label 'cat': the count is missing"),
        ("client,cat,dog\na,1,2\nb,3,4\na,5,6\n", "client 'a' has several rows"),
        ("client,cat,cat\na,1,2\n", "two columns are called 'cat'"),
        ("client,lable,count\na,cat,1\n", "Is it 'lable'? Say --label-column lable"),
        ("client,label,cuont\na,cat,1\n", "Is it 'cuont'? Say --count-column cuont"),
        ("client,lable,cuont\na,1,1\n", "Is it 'lable'?"),
        ("cleint,label,count\na,cat,1\n", "Is it 'cleint'? Say --client-column cleint"),
        (
            "x,y1,z\na,1,1\n",
            "there is no client column among x, y1, z. Name it with --client-column NAME",
        ),
        ("client\na\n", "no label columns"),
        ("client,label,count\n", "no rows below the header"),
        ("client,label,count\na,cat\n", "cannot be read as a table"),
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
    ],
)
def test_bad_files_are_one_clear_line(write, text, message):
    assert message in error_of(write(text))


def test_not_a_file(tmp_path, write):
    assert "there is no such file" in error_of(tmp_path / "nowhere.csv")
    assert "is a folder" in error_of(tmp_path)
    assert "not text in UTF-8" in error_of(write(b"\xff\xfe\x00client", "binary"))
    assert "cannot be read" in error_of(write(b"PAR1 but not really", "fake.parquet"))
    assert "cannot be read" in error_of(write(b"\x1f\x8bnot gzip", "fake.gz"))


def test_a_wrong_name_of_a_column(write):
    assert "no column is called 'lable'. Did you mean 'label'?" in error_of(
        write(LONG), label_column="lable"
    )


def test_mixed_up_columns_do_not_fill_the_memory(write, monkeypatch):
    monkeypatch.setattr("fedskew.measure.tables.MOST_CELLS", 3)
    assert "2 clients x 2 labels are too many" in error_of(write(LONG))


def test_kinds_of_errors(write):
    with pytest.raises(SignalError):
        read_counts(write("client,cat,dog\na,1,-2\n"))
    with pytest.raises(DataError):
        read_counts(write("client,lable,count\na,cat,1\n"))


def test_only_parquet_needs_pyarrow(write, tmp_path, monkeypatch):
    import builtins

    real = builtins.__import__

    def refuse(name, *rest, **more):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    pq.write_table(pa.table({"client": ["a"], "cat": [1], "dog": [2]}), tmp_path / "counts")
    monkeypatch.setattr(builtins, "__import__", refuse)
    assert read_counts(write(LONG)).table.tolist() == [[3, 1], [0, 4]]
    assert read_counts(write(gzip.compress(WIDE.encode()), "w.gz")).table.tolist() == [
        [3, 1],
        [0, 4],
    ]
    assert "pip install 'fedskew[tables]'" in error_of(tmp_path / "counts")


def test_csv_is_read_piece_by_piece(write, monkeypatch):
    """A column that is whole in one piece and has gaps or decimals in the next is one column."""
    monkeypatch.setattr("fedskew.measure.csv_table.CELLS", 6)
    rows = [(f"c{i % 7}", f"l{i % 3}", i) for i in range(50)]
    text = "client,label,count\n" + "".join(f"{c},{label},{n}\n" for c, label, n in rows)
    counts = read_counts(write(text.replace(",41\n", ",41.0\n")))
    expected = np.zeros((7, 3), np.int64)
    for i in range(50):
        expected[i % 7, i % 3] += i
    assert counts.table.tolist() == expected.tolist()
    assert "row 44 has 2 columns, the header 3" in error_of(
        write(text.replace("c1,l1,43\n", "c1,43\n"))
    )
    assert "client 'c1', label 'l1': the count is missing" in error_of(
        write(text.replace(",43\n", ",NA\n"))
    )


def test_quotes_and_blank_lines(write):
    text = 'client,label,count\n"a, north",cat,3\n\n"a, north","do""g",1\nb,"do""g",4\n\n'
    counts = read_counts(write(text))
    assert (list(counts.clients), list(counts.labels)) == (["a, north", "b"], ["cat", 'do"g'])
    assert counts.table.tolist() == [[3, 1], [0, 4]]
