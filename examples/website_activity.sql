-- What people do on a website, in SQL: the same results as those of website_activity.py.
--
--   python examples/feed.py website_activity        (in one terminal; creates the topics, too)
--   moldau run examples/website_activity.sql        (in another)

CREATE STREAM views (user STRING, page STRING, at TIMESTAMP)
  WITH (topic = 'page-views', timestamp = 'at', watermark = '2 minutes');

-- A session ends when its user does nothing for half an hour.
INSERT INTO TOPIC 'sessions' WITH (key = 'user')
  SELECT
    user,
    session_window.start AS window_start,
    session_window.end AS window_end,
    count(*) AS views,
    size(collect_set(page)) AS pages,
    min_by(page, at) AS entry,
    max_by(page, at) AS exit
  FROM views
  GROUP BY user, session_window(at, '30 minutes');

INSERT INTO TOPIC 'page-views-per-minute' WITH (key = 'page')
  SELECT page, window.start AS window_start, window.end AS window_end, count(*) AS count
  FROM views
  GROUP BY page, window(at, '1 minute');
