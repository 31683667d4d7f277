"""The codes of texts, files and options, of what queries mean, and of limits."""

from __future__ import annotations

from optimizer.errors.code import Code

CODES_OF_QUERIES = (
    # ---------------------------------------------------------------------------- text, files and options
    Code(
        "HDL-101",
        "The query cannot be read: FROM is missing, or a word, comma or parenthesis stands where none can.",
        "Correct the text at the place that is named.",
    ),
    Code("HDL-102", "A statement does not begin with SELECT.", "Begin every query with SELECT."),
    Code(
        "HDL-103",
        "The query uses something that the language does not have, such as a subquery, hint or template.",
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
        "A clause for windows, event sequences or options (WINDOW, SEQ, WITH) is missing, appears twice or is not "
        "written as it has to be.",
        "Write the clause as the hint shows.",
    ),
    Code("HDL-108", "A comment or a quote is opened and never closed.", "Close it."),
    Code(
        "HDL-109",
        "A setting in the comments before a query (its name, owner, lifetime, …) appears twice, has a value that it "
        "cannot have, or gives a lifetime to a query over a number of rows.",
        "Correct the comment; if it appears twice, a semicolon may be missing above.",
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
        "The project file heddle.toml cannot be read, can be changed by other users, or says what it may not.",
        "Correct it at the place that is named.",
        exit_code=2,
    ),
    Code(
        "HDL-124",
        "A command needs a warehouse, streams or files, and nothing says which.",
        "Give the option, set the variable, or write it into heddle.toml.",
        exit_code=2,
    ),
    Code(
        "HDL-125",
        "A setting has another name now.",
        "Write it as the message says; the former name is read until then.",
        severity="warning",
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
    Code(
        "HDL-148",
        "Registered queries are no longer in the workload file that they came from.",
        "Remove them with `heddle remove` or `heddle run --prune`, or put them back; they go on until then.",
        severity="warning",
    ),
    Code(
        "HDL-149",
        "More than half of the registered queries would be removed by --prune.",
        "See that all files are there, or remove queries by name.",
    ),
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
        "An event sequence is over rows or windows of unequal length, has too many events, or begins or ends with NOT.",
        "Give it windows of time with RANGE, split it into shorter sequences, or put NOT between two events.",
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
        "The lengths or words of a window that is cumulative, of a calendar or since the first event do not match.",
        "Write them as the hint shows.",
    ),
    Code(
        "HDL-242",
        "A query over a number of rows, or over event sequences, reads a value inside a nested column.",
        "Ask for a window of time, or write the value to a plain column.",
    ),
    Code(
        "HDL-243",
        "A text in double quotes is also the name of a column or an output (a warning for queries registered with it).",
        "Write the name without quotes or in backticks; write the text in single quotes.",
        severity="either",
    ),
    Code(
        "HDL-244",
        "An aggregate names no window that the query has, or no aggregate is over a window (a warning).",
        "Write sum(x) OVER name with a name of the WINDOW clause.",
        severity="either",
    ),
    Code(
        "HDL-245",
        "The windows of a query do not end at the same instants.",
        "Take lengths that are a whole number of slides apart, as the hint shows.",
    ),
    Code(
        "HDL-246",
        "A name of a column of the answers has spaces, and is written with underscores.",
        "Write the name of the hint, or leave it.",
        severity="warning",
    ),
    Code(
        "HDL-260",
        "An expectation cannot be read: it is no sentence of the grammar.",
        "Write it in one of the forms of docs/language.md: `-- expect: rate between 0 and 1`.",
    ),
    Code("HDL-261", "An expectation names a column that the answers, or the stream, do not have.", "Correct the name."),
    Code(
        "HDL-262",
        "An expectation has a type, a bound, a share or a pattern that does not fit.",
        "Do what the hint says.",
    ),
    Code(
        "HDL-263",
        "A suite of Great Expectations cannot be attached: its file cannot be read, or it has what is not run.",
        "Name a .json file below the folder of the workload file that has core classes over columns only.",
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
    Code("HDL-310", "The query has too many outputs, aggregates or windows.", "Split it."),
    Code(
        "HDL-311",
        "The owner of the query has as many queries as the quota permits.",
        "Remove some, or raise HEDDLE_OWNER_QUOTA.",
    ),
    Code(
        "HDL-319",
        "An event is in very many windows.",
        "Take a longer slide if so many answers are not needed; nothing has to be done else.",
        severity="warning",
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
)
