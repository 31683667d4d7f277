"""The codes of streams and their data."""

from __future__ import annotations

from optimizer.errors.code import Code

CODES_OF_SOURCES = (
    Code(
        "HDL-401",
        "There is nothing at the path of the stream: no folder, no file or table of its format, or no data to take a "
        "schema from.",
        "Check `path` and `format`; a relative path begins at the file of streams.",
    ),
    Code(
        "HDL-402",
        "A file of the stream cannot be read, or the log of its table names one that is not there.",
        "Write files under another name and rename them when they are complete.",
    ),
    Code(
        "HDL-403",
        "A file or a stream lacks a column that is read; a warning if other files of the stream have it: it is null "
        "there.",
        "Correct the query, the schema or the file.",
        severity="either",
    ),
    Code(
        "HDL-404",
        "A column, or a value in it, does not fit its declared type.",
        "Correct `schema` in the file of streams, or the file.",
    ),
    Code(
        "HDL-405",
        "The Delta table of the stream cannot be opened, or uses what Heddle does not read.",
        "Do what the hint says of the table.",
    ),
    Code(
        "HDL-406",
        "A stream of files that declare no columns has no schema.",
        "Name each column and its type under `schema`.",
    ),
    Code("HDL-407", "A rate is given for a stream that is not there.", "Correct the name of the stream.", exit_code=2),
    Code(
        "HDL-408",
        "A stream changed while its rows were numbered.",
        "Run again; write files under another name and rename them.",
    ),
    Code("HDL-409", "Reading a file failed in a way that was not foreseen.", "Leave the file out, and report it."),
    Code("HDL-410", "Events without a usable time were left out.", "Correct the files if they should count.", "either"),
    Code(
        "HDL-411",
        "Events came later than the stream allows, after their windows were published; they are left out.",
        "Take them in with `heddle quarantine --release`, or allow more lateness.",
        "record",
    ),
    Code("HDL-412", "No late events of this file are left out.", "Name a file that `heddle quarantine` lists."),
    Code(
        "HDL-413",
        "A stream has no events in the interval of the run.",
        "Check the interval, and whether the stream still comes in.",
        severity="warning",
    ),
    Code(
        "HDL-414",
        "A stream's folder has files that are not read: their names do not end as its format asks for.",
        "Decompress or rename them if they should count, or move them elsewhere.",
        severity="warning",
    ),
    Code(
        "HDL-415",
        "A file is compressed in another way than its name states, or is of another format.",
        "Rename it, decompress it, or correct `format`.",
    ),
    Code(
        "HDL-416",
        "The `_spark_metadata` log of a streaming sink leaves files of its folder out or names files that are gone; an "
        "error if it cannot be read.",
        "Restore what is missing; files that the log leaves out are not read, as in Spark.",
        severity="either",
    ),
    Code(
        "HDL-417",
        "A folder that is read file by file is a table: files that the table has removed count too.",
        "Correct `format`, or export the table.",
        severity="warning",
    ),
    Code(
        "HDL-418",
        "A file that Spark wrote in the legacy calendar has timestamps before 1900 in a zone other than UTC.",
        "Write it again with `spark.sql.parquet.datetimeRebaseModeInWrite` and `int96RebaseModeInWrite` CORRECTED.",
    ),
    Code("HDL-420", "A text file is not UTF-8.", "Save it as UTF-8."),
    Code("HDL-421", "A line of a CSV file has another number of fields than the others.", "Correct the line."),
    Code(
        "HDL-422",
        "A quote in a text file is never closed, or a record is too long.",
        "Close the quote, double one that is part of a text, or declare `quote: none`.",
    ),
    Code("HDL-423", "A column that is read appears twice in the header of a CSV file.", "Rename all but one."),
    Code(
        "HDL-424",
        "A stream has no data, or no event with a time where it was looked at.",
        "Check `path` and `time`.",
        severity="warning",
    ),
    Code(
        "HDL-425",
        "`heddle compare` cannot measure this stream: Spark's own reader has no option for how it is written.",
        "Compare on a copy that is written plainly.",
    ),
    Code(
        "HDL-430",
        "The log of the stream's Delta table lacks a commit.",
        "Put the commit back, or write the table anew.",
    ),
    Code(
        "HDL-431",
        "A column is left out of a discovered schema: no type holds what its files have.",
        "Declare a `schema` with the columns that are used.",
        severity="warning",
    ),
    Code(
        "HDL-432",
        "A stream whose source is copied is not copied yet.",
        "Run it, or `heddle copy`; until then it is planned at one event a second.",
        severity="either",
    ),
    Code(
        "HDL-433",
        "Spark cannot read the source of a stream.",
        "Check its name and options, Spark's packages and configuration, and whether the other side is up.",
    ),
    Code(
        "HDL-434",
        "What came to a source since it was copied is not known, or an option's value is not in the environment.",
        "Name a `watermark` of integers or timestamps; set the variable.",
    ),
    Code(
        "HDL-435",
        "The change data feed of a stream's table does not say which rows changed; what changed is known by files.",
        "Keep the feed on, and its files and the log for as long as runs may be apart.",
        severity="warning",
    ),
    Code(
        "HDL-450",
        "The file of streams is too large, not UTF-8 or may not be read; or a plan has no usable rate of a stream.",
        "Correct the file; give the rate with --rate.",
    ),
    Code("HDL-451", "The file of streams is not YAML.", "Correct it at the place that is named."),
    Code("HDL-452", "The file of streams has a key that is not known.", "Take the key that the hint names."),
    Code(
        "HDL-453",
        "The file of streams has another structure than it has to have, or lacks a key.",
        "Write plain keys and values below `streams:`.",
    ),
    Code("HDL-454", "There is no such type of a column.", "Take the type that the hint names."),
    Code("HDL-455", "The time column of the stream is missing or no timestamp.", "Declare it as the hint says."),
    Code("HDL-456", "A name appears twice, or two columns differ by case alone.", "Rename or remove one."),
    Code("HDL-457", "A value in the file of streams is not one that its key can have.", "Give a value as in the hint."),
    Code(
        "HDL-458",
        "A source lies where no stream is read from, or its path has a password or key in it.",
        "Move the data, correct HEDDLE_SOURCES, or keep credentials in the environment of who reads.",
    ),
    Code("HDL-459", "The file of streams has too many keys and values.", "Declare fewer."),
    Code(
        "HDL-461",
        "The column of event ids is missing, or neither strings nor integers.",
        "Name another column under `event_id`.",
    ),
    Code(
        "HDL-462",
        "A dimension has two rows for one key, or two that are valid at one time.",
        "Remove one of the rows that the message shows, or name more columns under `key`.",
    ),
    Code(
        "HDL-463",
        "The key of a dimension and its columns in use do not fit a task's memory.",
        "Raise HEDDLE_TASK_MEMORY, or use fewer columns of the dimension.",
    ),
    Code(
        "HDL-464",
        "A join does not name the complete key of a dimension, or compares it with something else.",
        "Write `JOIN <dimension> USING (<key>)`, or ON: each key column equals a column or an expression of the event.",
    ),
    Code(
        "HDL-465",
        "More than one in a hundred events have no row in a dimension that a query joins.",
        "Add the rows; JOIN leaves such events out, LEFT JOIN keeps them with nulls.",
        severity="warning",
    ),
    Code(
        "HDL-466",
        "Published answers use an older version of a dimension.",
        "Declare `repair: 30 days` with the dimension, or run the interval again with `--recompute`.",
        severity="warning",
    ),
    Code(
        "HDL-469",
        "A query has the name of a dimension: in SQL over answers the name is the query.",
        "Write `dimensions.<name>` for the dimension (`dimensions_<name>` in other engines), or rename the query.",
        severity="warning",
    ),
    Code(
        "HDL-470",
        "A stream is declared otherwise than when some published intervals were answered.",
        "`heddle repair` answers them by the declaration of now.",
        severity="warning",
    ),
    Code(
        "HDL-471",
        "Files of a landed folder changed after they were landed; the table has their rows of then.",
        "Replace the rows with `heddle land … --again FILE`; write new rows to new files.",
        severity="warning",
    ),
    Code(
        "HDL-472",
        "Rows of a landed folder, or complete files, do not fit the stream; they are in the quarantine table.",
        "See `why` there; correct the stream or the file, and land the file with `--again FILE`.",
        severity="warning",
    ),
    Code(
        "HDL-473",
        "Files of a folder did not land: they changed meanwhile, end within a row, or cannot be read.",
        "Land again when they are complete; write to another name and rename complete files.",
        severity="warning",
    ),
    Code(
        "HDL-474",
        "A folder cannot be landed as requested: its stream, columns, table or options.",
        "Correct what the message names.",
        exit_code=2,
    ),
    Code(
        "HDL-475",
        "Some events lie more than 366 days from all others of their stream.",
        "If a clock was wrong, correct the file; otherwise nothing: the time in between costs nothing.",
        severity="warning",
    ),
    Code(
        "HDL-476",
        "The interval begins after the newest event of every stream that the run reads.",
        "Correct --from, or add --allow-empty to publish the interval as idle.",
        exit_code=2,
    ),
    Code(
        "HDL-477",
        "`heddle run` has no --from or no --to.",
        "Add both; the message names the time that the data cover, and an example.",
        exit_code=2,
    ),
    Code(
        "HDL-480",
        "A compressed file expands to more than 1,000 times its size.",
        "Check what it is; decompress it if it is data.",
    ),
    Code(
        "HDL-481",
        "A JSON file has text that is no record, is cut, or lacks the array that `records` names.",
        "Correct the file at the line that is named, or `records`.",
    ),
    Code(
        "HDL-482",
        "The schema of a stream is taken from a sample of its files.",
        "Declare a `schema`; `heddle init` proposes one.",
        severity="warning",
    ),
    Code(
        "HDL-485",
        "Files lie outside the folders that `partitions` or the pattern in `path` declare (those of a pattern: a "
        "warning, they are not read).",
        "Move the files, or correct `partitions` or `path`.",
        severity="either",
    ),
    Code(
        "HDL-486",
        "Events lie outside the time of their folder, which is declared exact; they count by their own time.",
        "Write them into their folder, or leave `exact` out.",
        severity="warning",
    ),
    Code(
        "HDL-487",
        "A file has another value in a column than the name of its folder.",
        "Take the column out of `partitions` to read the file's values, or correct the file.",
    ),
    Code(
        "HDL-489",
        "The database of a stream cannot be reached or opened.",
        "Start the server, or correct host, port and database; let the program that writes the file close it.",
    ),
    Code(
        "HDL-490",
        "The database of a stream refuses the user, or does not let the user read the table.",
        "Correct `user` and `password` under `options`, or grant SELECT.",
    ),
    Code(
        "HDL-491",
        "Reading the table of a stream from its database failed.",
        "Run it again once the cause is gone: nothing of this time was copied, and nothing is copied twice.",
    ),
    Code(
        "HDL-492",
        "Timestamps of a database name no time zone, the stream declares none, and this machine's clock is not UTC.",
        "Write `zone: UTC`, or the zone of the values, under `source`.",
    ),
    Code(
        "HDL-494",
        "`heddle init` leaves out a table that has neither times nor a unique key.",
        "Name a time column by --time, or leave it.",
        severity="warning",
    ),
    Code("HDL-495", "--time of `heddle init` names no table or column.", "Write stream=column.", exit_code=2),
    Code(
        "HDL-496",
        "`heddle init` proposes only some of very many tables.",
        "Name the files or folders that you need.",
        severity="warning",
    ),
    Code(
        "HDL-497",
        "A version of a dimension that published answers use is gone, so they are not recomputed.",
        "Run the interval again with `heddle run`: its answers then use the current version.",
    ),
    Code(
        "HDL-499",
        "A test of a query gives no rows of a dimension that the query joins.",
        "Write its rows into the test, or for all tests of the file, under `dimensions`.",
    ),
)
