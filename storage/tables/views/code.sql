-- Where in the code memory was allocated.

-- name: views

-- Where in the code each site is: the line that its call stack is named by, and the operator. stack_of as in site. All of file,
-- line and function are NULL where no Python code is known.
CREATE VIEW site_line AS
SELECT s.id AS site_id, s.rank, s.frame_id, f.file, f.line, f.function, f.code_of, s.operator_name, s.stack_of
FROM site s LEFT JOIN frame f ON f.id = s.line_id;

-- Each call stack as a text, outermost frame first: path has the frames of the user's own code (all where there are none of
-- these), full_path all. "main train.py:40 > Net.forward model.py:12".
CREATE VIEW stack_path AS
WITH RECURSIVE down(frame_id, rank, full_path, users) AS (
  SELECT id, rank, function || ' ' || file || coalesce(':' || line, ''),
    iif(code_of = 'user', function || ' ' || file || coalesce(':' || line, ''), '')
  FROM frame WHERE caller_id IS NULL
  UNION ALL
  SELECT f.id, f.rank, d.full_path || ' > ' || f.function || ' ' || f.file || coalesce(':' || f.line, ''),
    d.users || iif(f.code_of = 'user', iif(d.users = '', '', ' > ') || f.function || ' ' || f.file || coalesce(':' || f.line, ''), '')
  FROM down d JOIN frame f ON f.caller_id = d.frame_id)
SELECT frame_id, rank, iif(users = '', full_path, users) AS path, full_path FROM down;

-- What was allocated at each period's highest point, by where in the code it was made. site_id NULL: that was not recorded.
-- step is NULL outside of steps; place is the period in words.
CREATE VIEW site_at_peak AS
SELECT p.rank, p.step, p.period, p.place, c.site_id, l.frame_id, l.file, l.line, l.function, l.code_of, l.operator_name, l.stack_of,
  c.category, c.module_id, c.bytes, c.allocations
FROM period_place p JOIN peak_site c ON c.rank = p.rank AND c.period = p.rows_of LEFT JOIN site_line l ON l.site_id = c.site_id;

-- The same by line. backward_bytes: of these, what backward operators made whose forward operator is of this line.
CREATE VIEW line_at_peak AS
SELECT rank, step, period, place, file, line, function, code_of, category, sum(bytes) AS bytes, sum(allocations) AS allocations,
  coalesce(sum(bytes) FILTER (WHERE stack_of = 'forward'), 0) AS backward_bytes
FROM site_at_peak GROUP BY rank, step, period, place, file, line, function, code_of, category;

-- The same by operator of PyTorch; operators are recorded in the steps of SHARDLEDGER_STACKS only.
CREATE VIEW operator_at_peak AS
SELECT rank, step, period, place, operator_name, category, sum(bytes) AS bytes, sum(allocations) AS allocations
FROM site_at_peak GROUP BY rank, step, period, place, operator_name, category;
