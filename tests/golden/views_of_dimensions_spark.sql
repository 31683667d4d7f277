CREATE OR REPLACE VIEW `mart`.`answers`.`owners`
WITH SCHEMA EVOLUTION AS
SELECT
  *
FROM `lake`.`dimensions`.`owners`;

CREATE OR REPLACE VIEW `mart`.`answers`.`dimensions_owners`
WITH SCHEMA EVOLUTION AS
SELECT
  *
FROM `lake`.`dimensions`.`owners`
