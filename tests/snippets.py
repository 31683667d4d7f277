"""The snippets that the README shows for reading results elsewhere; the tests run exactly these texts."""

SPARK = """
(spark.read.format("delta").load("var/warehouse/results")
 .where("query = 'carrier_delay_1h'")
 .selectExpr("window_start", "window_end", "from_json(key, 'array<string>')[0] AS carrier", "doubles[0] AS mean_delay"))
"""

DUCKDB = '''
results = DeltaTable("var/warehouse/results").to_pyarrow_dataset()
duckdb.sql("""SELECT window_start, window_end, key ->> '$[0]' AS carrier, doubles[1] AS mean_delay
              FROM results WHERE query = 'carrier_delay_1h'""")
'''

POLARS = """
(pl.scan_delta("var/warehouse/results")
 .filter(pl.col("query") == "carrier_delay_1h")
 .select("window_start", "window_end", mean_delay=pl.col("doubles").list.get(0),
         carrier=pl.col("key").str.json_decode(pl.List(pl.String)).list.get(0))
 .collect())
"""
