-- What the counterparts of the metrics share: windows of the table `events`, whose time is `t`, with instants within
-- `bounds`. Windows are enumerated and joined, which is slow and plain. Lengths are texts: '10 minutes'.
CREATE MACRO micros(length) AS (epoch(length::INTERVAL) * 1000000)::BIGINT;

-- Whether an instant is to be answered.
CREATE MACRO due(instant) AS instant > (SELECT since FROM bounds) AND instant <= (SELECT until FROM bounds);

-- Windows that begin at every multiple of the slide, with the events in them.
CREATE MACRO hops(size, slide) AS TABLE
  SELECT window_end, events.*
  FROM (
    SELECT make_timestamp(start) AS window_start, make_timestamp(start + micros(size)) AS window_end
    FROM (
      SELECT unnest(generate_series(
        (epoch_us(since) - micros(size)) // micros(slide) * micros(slide), epoch_us(until), micros(slide)
      )) AS start
      FROM bounds
    )
  ) JOIN events ON t >= window_start AND t < window_end
  WHERE due(window_end);

-- Windows from the last multiple of the size to every multiple of the step.
CREATE MACRO so_far(size, step) AS TABLE
  SELECT window_end, events.*
  FROM (
    SELECT make_timestamp((instant - 1) // micros(size) * micros(size)) AS window_start,
      make_timestamp(instant) AS window_end
    FROM (
      SELECT unnest(generate_series(
        epoch_us(since) // micros(step) * micros(step), epoch_us(until), micros(step)
      )) AS instant
      FROM bounds
    )
  ) JOIN events ON t >= window_start AND t < window_end
  WHERE due(window_end);

-- Windows of all events before every multiple of the slide.
CREATE MACRO ever(slide) AS TABLE
  SELECT window_end, events.*
  FROM (
    SELECT make_timestamp(unnest(generate_series(
      epoch_us(since) // micros(slide) * micros(slide), epoch_us(until), micros(slide)
    ))) AS window_end
    FROM bounds
  ) JOIN events ON t < window_end
  WHERE due(window_end);

-- Windows of so many months that end with each month.
CREATE MACRO months(number) AS TABLE
  SELECT window_end, events.*
  FROM (
    SELECT unnest(generate_series(date_trunc('month', since), until, INTERVAL 1 MONTH)) AS window_end FROM bounds
  ) JOIN events ON t >= window_end - to_months(number) AND t < window_end
  WHERE due(window_end);

-- The increase per second of a counter, of each series; a fall means that it began again at 0.
CREATE MACRO rates(counter, series, size, slide) AS TABLE
  SELECT window_end, instance,
    sum(CASE WHEN before IS NULL THEN 0 WHEN reading >= before THEN reading - before ELSE reading END)::DOUBLE
      / nullif(epoch_us(max(t) FILTER (reading IS NOT NULL)) - epoch_us(min(t) FILTER (reading IS NOT NULL)), 0)
      * 1000000 AS rate,
    epoch_us(max(t) FILTER (reading IS NOT NULL)) - epoch_us(min(t) FILTER (reading IS NOT NULL)) AS micros_between
  FROM (
    SELECT window_end, series AS instance, t, counter AS reading,
      lag(counter IGNORE NULLS) OVER (PARTITION BY window_end, series ORDER BY t) AS before
    FROM hops(size, slide)
  )
  GROUP BY window_end, instance;

-- Sessions of each key, with the events in them: an event more than a gap behind the one before it begins another.
CREATE MACRO sessions(key, gap) AS TABLE
  SELECT * FROM (
    SELECT *, max(t) OVER (PARTITION BY its_key, number) + gap::INTERVAL AS window_end FROM (
      SELECT *, count(*) FILTER (is_first) OVER (PARTITION BY its_key ORDER BY t) AS number FROM (
        SELECT *, key AS its_key,
          coalesce(epoch_us(t) - epoch_us(lag(t) OVER (PARTITION BY key ORDER BY t)) > micros(gap), true) AS is_first
        FROM events
      )
    )
  )
  WHERE due(window_end + INTERVAL 1 MICROSECOND);
