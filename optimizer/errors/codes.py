"""The registry of error codes: each code that Heddle tells, once, with what it means and what it brings about.

A code is stable: its number is never used for anything else. The first digit is its area (:data:`AREAS`). Whoever has
to decide by a code what happens (the exit code of a command, whether a whole run fails, the HTTP status of a page) asks
here, and :func:`exit_code`, :func:`is_fatal` and :func:`http_status` answer for any text: a warehouse may hold a code
that a later Heddle has declared.

``docs/errors.md`` is :func:`page`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

AREAS = MappingProxyType(
    {
        "1": "Text, files and options",
        "2": "Meaning of a query",
        "3": "Limits",
        "4": "Streams and their data",
        "5": "Warehouse, publishing and servers",
        "6": "Answers",
        "9": "Not foreseen",
    }
)
"""What the codes of a first digit are about."""

Severity = Literal["error", "warning", "either", "record"]
"""``record``: the code stands in a row of a table and ends nothing; ``either``: an error or a warning, as the place
says. ``heddle validate`` tells errors of a stream that no query reads as warnings."""


@dataclass(frozen=True)
class Code:
    """An error code.

    Parameters
    ----------
    code
        ``HDL-`` and three digits.
    meaning
        What has happened, one sentence.
    action
        What a person does about it, one sentence.
    severity
        How it is told: see :data:`Severity`.
    exit_code
        Of a command that it ends: 2 if the command was called wrongly, else 1.
    fatal
        Whether it fails a run as a whole wherever it arises; any other error that arises in the work on one stream
        fails that stream alone, and the run if no stream is left.
    http_status
        Of a page of the Airflow plugin that it ends.
    """

    code: str
    meaning: str
    action: str
    severity: Severity = "error"
    exit_code: Literal[1, 2] = 1
    fatal: bool = False
    http_status: int = 400

    @property
    def area(self) -> str:
        """What it is about: one of :data:`AREAS`."""
        return AREAS[self.code[len("HDL-")]]


DECLARED = (
    # ---------------------------------------------------------------------------- text, files and options
    Code(
        "HDL-101",
        "The query cannot be read: FROM is missing, or a word, comma or parenthesis stands where none can.",
        "Correct the text at the place that is named.",
    ),
    Code("HDL-102", "A statement does not begin with SELECT.", "Begin every query with SELECT."),
    Code(
        "HDL-103",
        "The query uses something that the language does not have, such as a join, subquery, hint or template.",
        "Write one plain SELECT over one stream.",
    ),
    Code(
        "HDL-104",
        "There is no function of this name, or it takes another number of arguments.",
        "Take the function that the hint names.",
    ),
    Code(
        "HDL-105",
        "SELECT has no aggregate, has something else than group columns and single aggregates, or an aggregate "
        "stands where none can.",
        "Select group columns and single aggregates.",
    ),
    Code(
        "HDL-107",
        "A clause for windows, event sequences or options (WINDOW, SEQ, WITH) is missing, stands twice or is not "
        "written as it has to be.",
        "Write the clause as the hint shows.",
    ),
    Code("HDL-108", "A comment or a quote is opened and never closed.", "Close it."),
    Code(
        "HDL-109",
        "A setting in the comments before a query (its name, owner, lifetime, …) stands twice, has a value that it "
        "cannot have, or gives a lifetime to a query over a number of rows.",
        "Correct the comment; if it stands twice, a semicolon may be missing above.",
    ),
    Code(
        "HDL-110",
        "A number, date, timestamp, format of times, pattern of LIKE or regular expression in the text is none.",
        "Write it in the form that the hint shows.",
    ),
    Code(
        "HDL-111",
        "A file of queries, streams or windows is missing, too large, not UTF-8 or may not be read, or a folder has "
        "no .sql file.",
        "Check the path; save the file as UTF-8, or split it.",
        exit_code=2,
    ),
    Code(
        "HDL-112",
        "A rate, tolerance, search or cost model that was given cannot be used.",
        "Give it in the form that the hint shows.",
        exit_code=2,
    ),
    Code(
        "HDL-113",
        "Nothing is left to be planned: no query or window is usable, or every usable query is paused.",
        "Correct what `heddle validate` tells, or `heddle resume` some queries.",
    ),
    Code("HDL-114", "An instant that was given is none.", "Write 2013-07-01T00:00:00; it is in UTC.", exit_code=2),
    Code(
        "HDL-115",
        "A duration that was given cannot be used here, or the file of --output cannot be written.",
        "Give a duration as in the hint, or another file.",
        exit_code=2,
    ),
    Code("HDL-116", "The paper has no experiment for this figure.", "Choose a figure of the hint.", exit_code=2),
    Code(
        "HDL-117",
        "A file of windows is not a CSV file with the columns range and slide.",
        "Write `range,slide` into its first line.",
    ),
    Code(
        "HDL-118",
        "Rows of a file of windows are no windows; they are left out.",
        "Give a range and a slide in seconds above 0, in whole microseconds.",
    ),
    Code("HDL-119", "The text has a character that cannot be seen.", "Remove it."),
    Code(
        "HDL-120",
        "A setting from the environment has a value that it cannot have.",
        "Give it a value of the type that the page on configuration names.",
    ),
    Code(
        "HDL-121",
        "A window is written as a function of Spark or Flink, in a way that Heddle's language does not have.",
        "Write the window as the hint shows.",
    ),
    Code(
        "HDL-122",
        "The query is left out because the declaration of its stream cannot be used.",
        "Correct what is told of the stream.",
    ),
    Code(
        "HDL-123",
        "The project file heddle.toml cannot be read, or says what it may not.",
        "Correct it at the place that is named.",
        exit_code=2,
    ),
    Code(
        "HDL-124",
        "A command needs a warehouse, streams or files, and nothing says which.",
        "Give the option, set the variable, or write it into heddle.toml.",
        exit_code=2,
    ),
    Code("HDL-130", "No query has events to preview.", "See the messages, and `heddle streams`."),
    Code("HDL-131", "A preview has too many answers to compare.", "Take a shorter `--last`.", exit_code=2),
    Code("HDL-132", "A file of tests of queries cannot be used.", "Correct it at its place.", exit_code=2),
    Code("HDL-133", "`heddle init` would overwrite a file.", "Move it, or say another --folder.", exit_code=2),
    Code(
        "HDL-134", "There are no data where they were looked for.", "Name a file, folder or Delta table.", exit_code=2
    ),
    Code("HDL-135", "Data cannot be taken as a stream.", "See what the message says of the file."),
    Code("HDL-136", "Data have no column of times, or none of that name.", "Name one by --time.", exit_code=2),
    Code("HDL-140", "A part of an imported job is left out.", "Check that no query needs it.", severity="warning"),
    Code("HDL-141", "A query of an imported job groups by no window.", "Group by a window, or keep the job."),
    Code("HDL-142", "A query of an imported job reads not just one stream.", "Join in a job before."),
    Code("HDL-143", "A query of an imported job is no single grouping.", "Write it as the hint shows."),
    Code("HDL-144", "An imported job has windows that Heddle has not.", "Take windows of a fixed length on a column."),
    Code("HDL-145", "An imported job computes with the bounds of a window.", "Do so as the answers are read."),
    Code("HDL-146", "A statement of an imported job cannot be read.", "Correct it, or name the right --dialect."),
    Code("HDL-147", "An imported query differs in a detail.", "Check that this is wanted.", severity="warning"),
    # ------------------------------------------------------------------------------- meaning of a query
    Code("HDL-201", "There is no stream of this name.", "Correct the name, or declare the stream."),
    Code("HDL-202", "The stream or the query has no column of this name.", "Take the column that the hint names."),
    Code(
        "HDL-203",
        "An expression has a type that cannot stand here.",
        "Compare or compute with values of fitting types.",
    ),
    Code(
        "HDL-204",
        "A duration or a number of rows cannot be read, is not above zero, uses months or years, or is no whole number "
        "of microseconds or rows.",
        "Write it as '10 minutes', '30 days' or 100 ROWS.",
    ),
    Code("HDL-205", "The window is on another column than the stream's event time.", "Name the stream's time column."),
    Code(
        "HDL-206",
        "GROUP BY takes columns and expressions, PARTITION BY columns, once each, no doubles and not the event time.",
        "Group by integers, decimals, texts or times; write a query for each of several groupings.",
    ),
    Code("HDL-207", "A selected column is neither grouped by nor aggregated.", "Add it to GROUP BY, or aggregate it."),
    Code(
        "HDL-208",
        "Two columns of the answers have one name, or a name that they cannot have.",
        "Give the column another name with AS.",
    ),
    Code("HDL-209", "Two queries have one name; the first is kept.", "Rename one of them."),
    Code(
        "HDL-210",
        "The slide is longer than the range, so events between two windows are in none.",
        "Check that this is wanted; nothing has to be done then.",
        severity="warning",
    ),
    Code(
        "HDL-211",
        "An exact result can need more than 38 digits.",
        "Make one side a double, for instance by multiplying with 1e0.",
    ),
    Code(
        "HDL-213",
        "The columns of the stream are not known, so the query cannot be checked.",
        "Give the stream a `schema`, or make its source readable.",
    ),
    Code(
        "HDL-214", "The fraction of a quantile is not one that it can have.", "Give a constant such as 0.5, the median."
    ),
    Code(
        "HDL-215",
        "The number of values of a list, or the size of a sketch, is not one that it can have.",
        "Give a whole number such as 10.",
    ),
    Code(
        "HDL-216",
        "The permitted error or the accuracy of a sketch is not one that it can have.",
        "Give an error such as 0.01, or an accuracy such as 100.",
    ),
    Code(
        "HDL-217",
        "HAVING takes conditions over aggregates, outputs and group columns.",
        "Move conditions on other columns to WHERE, and compare values.",
    ),
    Code(
        "HDL-218",
        "WITH (error = …) changes nothing: every aggregate of the query is exact or names its own error.",
        "Leave it out.",
        severity="warning",
    ),
    Code(
        "HDL-219",
        "Rows are counted for each value of a column that the query does not group by.",
        "Group by the column, or leave PARTITION BY out.",
    ),
    Code(
        "HDL-220",
        "An event sequence is over a number of rows, or has more events than is allowed.",
        "Give it a window of time, or split it into shorter sequences.",
    ),
    Code(
        "HDL-221",
        "The column of event types is neither strings nor integers, or an event type is no value of it.",
        "Name the column that tells what an event is, and write its values.",
    ),
    Code(
        "HDL-222",
        "An aggregate over event sequences does not apply to them, or it is not said of which one event.",
        "Aggregate a column of one event, as the hint shows.",
    ),
    Code(
        "HDL-223",
        "An aggregate is of an event type that is not in the sequence, so no sequence has one.",
        "Check the name of the event type.",
        severity="warning",
    ),
    Code(
        "HDL-224",
        "The refresh bound (SLIDE AT MOST) is shorter than the step of the stream.",
        "Allow a longer bound, or give the stream a shorter `step`.",
    ),
    Code(
        "HDL-225",
        "The range of a query with a refresh bound is no multiple of the step of the stream.",
        "Take the range that the hint names, or give the stream another `step`.",
    ),
    Code(
        "HDL-226",
        "Two queries ask for the same table of their own; the first one keeps it.",
        "Give one of them another `-- table`.",
    ),
    Code(
        "HDL-229",
        "ORDER BY and LIMIT do not say which groups of each window are the first ones.",
        "Write both, over aggregates or outputs of a query with GROUP BY and windows of time.",
    ),
    Code("HDL-240", "There is no time zone of this name.", "Take a name of the tz database such as Europe/Berlin."),
    Code(
        "HDL-241",
        "The lengths or words of a cumulative window, or of one of a calendar, do not go together.",
        "Write them as the hint shows.",
    ),
    # ------------------------------------------------------------------------------------------- limits
    Code("HDL-301", "The query has too many bytes.", "Split it."),
    Code("HDL-302", "The query has too many words.", "Split it."),
    Code("HDL-303", "Expressions are nested too deeply, or one is too long.", "Remove parentheses, or shorten it."),
    Code("HDL-304", "The query has too many ANDs, ORs and commas.", "Use IN or BETWEEN, or split the query."),
    Code("HDL-305", "A word, text or number is too long, or too large for a double.", "Shorten it."),
    Code("HDL-306", "The slide is shorter than is allowed.", "Take a longer slide."),
    Code("HDL-307", "A duration, or a number of rows, of the window is larger than is allowed.", "Take a smaller one."),
    Code("HDL-308", "The range is too many times the slide.", "Take the slide that the hint names, or a longer one."),
    Code("HDL-309", "The query groups by too many columns.", "Group by fewer."),
    Code("HDL-310", "The query has too many outputs or aggregates.", "Split it."),
    Code(
        "HDL-311",
        "The owner of the query has as many queries as the quota permits.",
        "Remove some, or raise HEDDLE_OWNER_QUOTA.",
    ),
    Code(
        "HDL-350",
        "Counting the edges of these windows is beyond the limit of the edge counter that was chosen.",
        "Use the counter `auto`, or slides with common factors.",
    ),
    Code(
        "HDL-351",
        "An exhaustive search would be larger than its limit.",
        "Use the search that the hint names.",
    ),
    # --------------------------------------------------------------------------- streams and their data
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
    Code("HDL-406", "A CSV stream has no schema.", "Name each column and its type under `schema`."),
    Code("HDL-407", "A rate is given for a stream that is not there.", "Correct the name of the stream.", exit_code=2),
    Code(
        "HDL-408",
        "A stream changed while its rows were numbered.",
        "Run again; write files under another name and rename them.",
    ),
    Code("HDL-409", "Reading a file failed in a way that was not foreseen.", "Leave the file out, and report it."),
    Code("HDL-410", "Events without an event time were left out.", "Correct the files if they should count.", "record"),
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
    Code("HDL-420", "A CSV file is not UTF-8.", "Save it as UTF-8."),
    Code("HDL-421", "A line of a CSV file has another number of fields than the others.", "Correct the line."),
    Code(
        "HDL-422",
        "A quote in a CSV file is never closed, or a record is too long.",
        "Close the quote, double one that is part of a text, or declare `quote: none`.",
    ),
    Code("HDL-423", "A column that is read stands twice in the header of a CSV file.", "Rename all but one."),
    Code(
        "HDL-424",
        "A stream has no data, or no event with a time where it was looked at.",
        "Check `path` and `time`.",
        severity="warning",
    ),
    Code(
        "HDL-425",
        "`heddle compare` cannot measure this stream: Spark's own reader cannot be told how it is written.",
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
    Code("HDL-456", "A name stands twice, or two columns differ by case alone.", "Rename or remove one."),
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
    # ---------------------------------------------------------------- warehouse, publishing and servers
    Code("HDL-501", "The folder has files in it and is no warehouse.", "Name a new or an empty folder.", exit_code=2),
    Code(
        "HDL-502",
        "There is no warehouse at this place.",
        "Check --warehouse; `heddle run` makes one.",
        exit_code=2,
        http_status=404,
    ),
    Code(
        "HDL-503",
        "The warehouse was written in a format that this Heddle does not have.",
        "Upgrade Heddle, or backfill into a new folder.",
    ),
    Code("HDL-504", "The interval is empty, or takes too many runs.", "Correct --from, --to or --every.", exit_code=2),
    Code(
        "HDL-505", "None of the plan's streams could be read; nothing was published.", "Correct what is told of them."
    ),
    Code("HDL-506", "There is no plan of this version, or none to compare it with.", "See `heddle status`."),
    Code("HDL-507", "The plan has no query of this name.", "Take the name that the hint gives."),
    Code(
        "HDL-508", "No run of this interval has been published, so there is nothing to compare.", "See `heddle status`."
    ),
    Code(
        "HDL-510",
        "Another writer was first: the lease was lost, or a table has changed meanwhile; nothing was committed.",
        "Run it again.",
        fatal=True,
    ),
    Code(
        "HDL-511",
        "A commit that was made is not in the log of its table.",
        "Run it again; see that nobody writes to the warehouse without the lease.",
        fatal=True,
    ),
    Code(
        "HDL-512",
        "A newer revision of the interval is published already.",
        "Nothing: the newer answers stand.",
        fatal=True,
    ),
    Code(
        "HDL-513",
        "The PostgreSQL server that keeps the lease cannot be reached.",
        "Check HEDDLE_LEASE_DSN and the server.",
        fatal=True,
    ),
    Code("HDL-515", "No run of this warehouse has recorded what it took.", "Run first, then calibrate."),
    Code(
        "HDL-516",
        "The warehouse's file of costs holds something else.",
        "Make it anew with `heddle calibrate`, or remove it.",
    ),
    Code(
        "HDL-517",
        "None of the plan's queries could be answered; nothing was published.",
        "Correct what is told of them.",
    ),
    Code(
        "HDL-518",
        "Stored partial aggregates over rows lack rows, or have some twice.",
        "Run again once the source is still.",
    ),
    Code("HDL-520", "Delta's jar is not there.", "Run `make setup`, or set HEDDLE_JARS."),
    Code(
        "HDL-521",
        "There is no registered query of this name.",
        "Take the name that the hint gives.",
        http_status=404,
    ),
    Code(
        "HDL-522",
        "Queries were registered, changed or planned by somebody else meanwhile; nothing was stored.",
        "Run it again.",
    ),
    Code(
        "HDL-523",
        "No query would be left to run; nothing was changed.",
        "To stop everything, pause the DAG or stop `heddle tick`.",
    ),
    Code(
        "HDL-524",
        "No plan and no file knows the stream of a registered query.",
        "Give the file that declares the stream.",
    ),
    Code(
        "HDL-525",
        "Queries would be removed and nobody agreed; nothing was changed.",
        "Say --yes if they are to go.",
        exit_code=2,
    ),
    Code(
        "HDL-526",
        "A refresh would remove too many registered queries; nothing was changed.",
        "See that the workload's folder is there; set `allow_removals` if they are to go.",
    ),
    Code(
        "HDL-527",
        "Answers would be deleted and nobody agreed; nothing was changed.",
        "Say --yes if they are to go.",
        exit_code=2,
    ),
    Code(
        "HDL-528",
        "Registered queries no longer fit their streams; nothing was changed.",
        "Give the corrected queries too, or `heddle remove` them.",
    ),
    Code(
        "HDL-530",
        "The checks of the answers failed; nothing was published.",
        "See the quality results of the run, and correct the data.",
    ),
    Code("HDL-531", "A check crashed; nothing was published.", "Report it."),
    Code(
        "HDL-532",
        "The answers were not checked before they were published, as somebody had asked for.",
        "Run the interval again with `--checks all`.",
        severity="warning",
    ),
    Code(
        "HDL-540",
        "The file of the warehouse's lease is damaged.",
        "Remove the file while nothing writes to the warehouse.",
        fatal=True,
    ),
    Code(
        "HDL-541",
        "Another run or maintenance replaced what this run needs or publishes; nothing was published.",
        "Run it again.",
    ),
    Code(
        "HDL-542",
        "A file of the warehouse cannot be written; the disk may be full.",
        "Make room, and run it again.",
        fatal=True,
    ),
    Code(
        "HDL-543",
        "A data file of the warehouse is missing or damaged.",
        "Publish the days again that the hint names: `heddle run --recompute`.",
        fatal=True,
    ),
    Code(
        "HDL-544",
        "The log of a table of the warehouse cannot be read.",
        "Put its `_delta_log` back from a copy; nothing is published until then.",
        fatal=True,
    ),
    Code(
        "HDL-545",
        "This user may not write to the warehouse.",
        "Permit it; what only reads works all the same.",
    ),
    Code(
        "HDL-546",
        "The folder cannot be a warehouse, or its marker is damaged.",
        "Name another folder, or do what the hint says.",
    ),
    Code(
        "HDL-547",
        "There are no answers because the last run that was to answer the query failed.",
        "Correct what is told, and run it again.",
    ),
    Code(
        "HDL-548", "There are no answers because no run was to answer the query.", "`heddle run` or `heddle backfill`."
    ),
    Code(
        "HDL-551",
        "Another plan has come into force since this was decided; nothing was applied.",
        "Make a new dry run and look at its difference.",
        http_status=409,
    ),
    Code("HDL-552", "The form of the refresh page has a value that cannot be used.", "Correct it in the form."),
    Code(
        "HDL-553",
        "There is no finished dry run that would change the plan, so there is nothing to apply.",
        "Make a dry run first.",
    ),
    Code(
        "HDL-554",
        "A request that changes something did not come from a page of this server.",
        "Open the page in Airflow and try again.",
        http_status=403,
    ),
    Code(
        "HDL-555",
        "Somebody else is looking for outdated intervals.",
        "Try again in a moment.",
        http_status=429,
    ),
    Code("HDL-556", "The DAG refresh_sharing_plan is paused, so no refresh runs.", "Unpause it."),
    Code(
        "HDL-557",
        "Great Expectations could not make a page of checks; the checks themselves are stored.",
        "Report it; see the quality results for the checks.",
    ),
    Code(
        "HDL-558",
        "What this revision changed cannot be shown: its files are removed, or it has too many answers.",
        "Nothing: the answers themselves stand.",
    ),
    Code(
        "HDL-559",
        "The interval has no published revision of this number.",
        "Take one that the page of operations lists.",
        http_status=404,
    ),
    Code(
        "HDL-560",
        "The plan would be another than the dry run showed; nothing was applied.",
        "Make a new dry run and look at its difference.",
    ),
    Code(
        "HDL-561",
        "A column of a query's own table has another type in the query now; the table stays as it was.",
        "`heddle tables --rebuild NAME` makes it anew from the published answers; or name another `-- table`.",
    ),
    Code(
        "HDL-562",
        "Where the table of a query is to be, there is another query's table or something else.",
        "`heddle tables --rebuild NAME` takes another query's table over; move what is no table of a query elsewhere.",
    ),
    Code(
        "HDL-563",
        "The table of a query could not be written; its answers are published.",
        "Nothing is lost: the next run writes what is missing, or `heddle tables`.",
    ),
    Code(
        "HDL-564",
        "No query has a table of that name.",
        "`heddle tables` lists them.",
    ),
    Code("HDL-571", "What serves the pages is not installed.", "pip install 'heddle[serve]'."),
    Code(
        "HDL-572",
        "Other machines may reach the address that pages are to be served at.",
        "Leave --host out, or permit it with --expose behind what asks for a user.",
        exit_code=2,
    ),
    Code("HDL-573", "The address that pages are to be served at cannot be listened on.", "Choose another port."),
    Code(
        "HDL-574",
        "The URL of a store is none, or of a kind that is not known.",
        "Write it as the hint has it.",
        exit_code=2,
    ),
    Code(
        "HDL-575",
        "The URL of a store has credentials in it.",
        "Take them out: they come from the environment or the instance.",
        exit_code=2,
    ),
    Code("HDL-576", "There is no such bucket.", "Make it, or name another."),
    Code("HDL-577", "The store refuses the credentials, or they have expired.", "Renew them, or permit it there."),
    Code("HDL-578", "The store cannot be reached, or asks for fewer requests.", "Run it again; see the hint."),
    Code(
        "HDL-579",
        "The store lets two writers make one object: commits could be lost.",
        "Use one whose conditional PUT (If-None-Match) holds.",
    ),
    Code("HDL-591", "This machine gives out no free port on 127.0.0.1.", "Stop what holds them."),
    Code("HDL-592", "PostgreSQL (pgserver) is not installed.", "Run `make setup`."),
    Code(
        "HDL-593",
        "PostgreSQL does not run as root, and the machine has no other user for it.",
        "Run make as an ordinary user.",
    ),
    Code("HDL-594", "The embedded PostgreSQL did not start.", "See the end of its log in the message."),
    Code("HDL-595", "The embedded Airflow ended, or did not become healthy in time.", "See its log."),
    Code("HDL-597", "The embedded S3 server did not start.", "See its log."),
    Code("HDL-598", "The embedded S3 server is not there.", "Run `make setup`."),
    Code("HDL-596", "Nothing is published for the interval of this DAG run.", "See the log of the task before."),
    # ------------------------------------------------------------------------------------------ answers
    Code(
        "HDL-601",
        "A value does not fit the type of its output; it is null, and its row says so.",
        "Compute it in double, for instance by multiplying with 1e0.",
        "record",
    ),
    Code(
        "HDL-602",
        "The query has more groups than one task holds; it fails, the others go on.",
        "Group by columns with fewer values, or filter.",
    ),
    Code("HDL-603", "No partial aggregates are stored for the query.", "`heddle run` stores them."),
    Code("HDL-604", "The window of a look-up is not stored as a whole.", "Take a window that the hint names."),
    Code("HDL-605", "The query has no such group.", "Give one value for each column that it groups by."),
    Code(
        "HDL-606",
        "The window of a look-up is empty, or does not lie on edges of the stored fragments.",
        "Take the nearest edges, as in the hint.",
    ),
    Code(
        "HDL-607",
        "Queries of this kind of window are not answered on demand.",
        "Read the published answers with `heddle read`.",
    ),
    Code("HDL-608", "The thresholds of a look-up cannot be used.", "Compare outputs of the query with constants."),
    Code(
        "HDL-609",
        "Which groups are the first of a window depends on all groups: some of them cannot be looked up alone.",
        "Look up all groups of one instant.",
    ),
    Code(
        "HDL-620",
        "The SQL of `heddle sql` cannot be read, or failed.",
        "Correct it at the place that is named: it is DuckDB's SQL.",
        exit_code=2,
    ),
    Code(
        "HDL-621",
        "The SQL names a relation that there is not.",
        "Take a query's name; `heddle queries` lists them.",
        exit_code=2,
    ),
    Code(
        "HDL-622",
        "The SQL would do something else than to read answers.",
        "Ask a SELECT; `spark_jobs.results.connect.connect` gives a connection that may do more.",
        exit_code=2,
    ),
    Code(
        "HDL-623",
        "Views cannot be written for this engine, or not with this name of a table.",
        "Take a dialect that the hint names, or name the table with --from.",
        exit_code=2,
    ),
    Code(
        "HDL-624",
        "Spark's catalogue does not take the views of HEDDLE_CATALOG_SCHEMA; answers are not concerned.",
        "Make the schema, or permit it, and run `spark_jobs/create_views.py`.",
    ),
    # ------------------------------------------------------------------------------------- not foreseen
    Code("HDL-900", "An error of Heddle itself.", "Report it, with the traceback that the message names."),
    Code("HDL-901", "There is not enough memory.", "Give more, or ask for less at once."),
    Code(
        "HDL-902",
        "The operating system refused a file or a connection.",
        "Check the path, its permissions and the disk.",
    ),
    Code("HDL-903", "The command or run was interrupted.", "Run it again."),
    Code(
        "HDL-904",
        "A package is not installed that this command needs.",
        "Install Heddle with the extra that has it, such as `heddle[spark]`.",
    ),
)

CODES: Mapping[str, Code] = MappingProxyType({code.code: code for code in DECLARED})
"""Every code, by its number."""


def exit_code(code: str) -> int:
    """The exit code of a command that an error of this code ends: 2 if the command was called wrongly, else 1."""
    return CODES[code].exit_code if code in CODES else 1


def is_fatal(code: str) -> bool:
    """Whether an error of this code fails a run as a whole, and not only the stream in whose work it arose."""
    return code in CODES and CODES[code].fatal


def http_status(code: str) -> int:
    """The HTTP status of a page that an error of this code ends."""
    return CODES[code].http_status if code in CODES else 400


def page() -> str:
    """The registry as Markdown: a table for each area."""
    module = __spec__.name if __spec__ is not None else __name__
    statuses = ", ".join(f"{code.code} {code.http_status}" for code in DECLARED if code.http_status != 400)
    lines = [
        "# Error codes",
        "",
        f"<!-- Generated: edit {module.replace('.', '/')}.py, then python -m {module} > docs/errors.md -->",
        "",
        "Whatever Heddle refuses or reports carries a code, a message and, where something can be done, a hint. "
        "A code never changes its meaning.",
        "",
        "- **Severity**: an error leaves out what it is about, a warning does not; a record stands in a row of a "
        "table. `heddle validate` tells errors of a stream that no query reads as warnings.",
        "- **Exit**: the exit code of a command that the error ends; 2 means that it was called wrongly.",
        "- **Fails the run**: yes, if the whole run fails wherever the error arises. Any other error that arises in "
        "the work on one stream fails that stream alone, and the run if no stream is left.",
        f"- **HTTP status** of a page in Airflow that the error ends: {statuses}; any other 400.",
    ]
    for area in AREAS.values():
        lines += ["", f"## {area}", "", "| Code | Meaning | What to do | Severity | Exit | Fails the run |"]
        lines.append("|---|---|---|---|---|---|")
        lines += [_row(code) for code in DECLARED if code.area == area]
    return "\n".join(lines) + "\n"


def _row(code: Code) -> str:
    severity = "error or warning" if code.severity == "either" else code.severity
    ends = str(code.exit_code) if code.severity in ("error", "either") else ""
    return f"| {code.code} | {code.meaning} | {code.action} | {severity} | {ends} | {'yes' if code.fatal else ''} |"


if __name__ == "__main__":
    sys.stdout.write(page())
