CREATE OR REPLACE VIEW "mart"."answers"."owners" AS
SELECT
  "product_id",
  "owner",
  "since",
  "until"
FROM "lake"."dimensions"."owners";

CREATE OR REPLACE VIEW "mart"."answers"."dimensions_owners" AS
SELECT
  "product_id",
  "owner",
  "since",
  "until"
FROM "lake"."dimensions"."owners"
