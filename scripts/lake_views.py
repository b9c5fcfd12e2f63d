"""The ledger's views in other engines' SQL: what scripts/update-lake-views writes. One function for each thing that SQLite
understands in its own way."""

import contextlib
import re
import sqlite3

import sqlglot
from ledger_schema import shared_views, statements
from sqlglot import exp

ENGINES = ("duckdb", "spark")


# ---- SQLite's own, in words of all ----


def joins(tree):
    """CROSS JOIN … ON only tells SQLite's planner an order."""
    for join in tree.find_all(exp.Join):
        if join.args.get("on") and join.args.get("kind") == "CROSS":
            join.set("kind", None)


def null_safe(tree):
    """a IS b, of two values."""
    for node in list(tree.find_all(exp.Is)):
        if not isinstance(node.expression, (exp.Null, exp.Boolean)):
            node.replace(exp.paren(exp.NullSafeEQ(this=node.this, expression=node.expression)))


def whole_division(tree):
    """The quotient of two integers is one; a fraction in it (1.0) says that more is wanted."""
    for node in list(tree.find_all(exp.Div)):
        if not any(literal.is_number and "." in literal.name for literal in node.find_all(exp.Literal)):
            node.replace(exp.IntDiv(this=node.this, expression=node.expression))


def fractions(tree):
    """1.0 is a double; elsewhere it is a decimal."""
    for literal in list(tree.find_all(exp.Literal)):
        if literal.is_number and "." in literal.name:
            literal.replace(exp.cast(literal.copy(), "DOUBLE"))


def like(tree):
    """SQLite's LIKE does not mind case."""
    for node in list(tree.find_all(exp.Like)):
        node.replace(exp.ILike(**node.args))


def greatest(tree):
    """max(a, b) is no aggregate."""
    for node in list(tree.find_all(exp.Max)):
        if node.expressions:
            node.replace(exp.Greatest(this=node.this, expressions=node.expressions))


def named_values(tree):
    """VALUES call their columns column1, column2, … in SQLite."""
    for values in tree.find_all(exp.Values):
        if not values.args.get("alias"):
            width = len(values.expressions[0].expressions)
            columns = [exp.to_identifier(f"column{number + 1}") for number in range(width)]
            values.set("alias", exp.TableAlias(this=exp.to_identifier("given"), columns=columns))


TRUTH = (exp.Predicate, exp.And, exp.Or, exp.Not, exp.Exists, exp.Boolean)


def is_truth(node):
    while isinstance(node, exp.Paren):
        node = node.this
    return is_truth(node.args["true"]) if isinstance(node, exp.If) else isinstance(node, TRUTH)


def as_condition(node):
    """A number where a condition is wanted: that it is not 0."""
    if node is not None and not is_truth(node):
        node.replace(exp.NEQ(this=exp.paren(node.copy()) if isinstance(node, exp.Case) else node.copy(),
                             expression=exp.Literal.number(0)))


def conditions(tree):
    for node in list(tree.walk()):
        if isinstance(node, exp.If):
            if not (isinstance(node.parent, exp.Case) and node.parent.this):
                as_condition(node.this)
        elif isinstance(node, (exp.Where, exp.Having, exp.Not)):
            as_condition(node.this)
        elif isinstance(node, (exp.And, exp.Or)):
            as_condition(node.this)
            as_condition(node.expression)
        elif isinstance(node, exp.Join):
            as_condition(node.args.get("on"))


def numbers(tree):
    """A condition where a value is wanted: 1, 0, or NULL."""
    for node in list(tree.walk()):
        if not is_truth(node) or isinstance(node, exp.Paren):
            continue
        parent, child = node.parent, node
        while isinstance(parent, exp.Paren):
            parent, child = parent.parent, parent
        within_function = isinstance(parent, (exp.AggFunc, exp.Coalesce))
        if isinstance(parent, (exp.Select, exp.Alias, exp.Ordered, exp.Binary)) and not isinstance(parent, exp.Connector) \
                or within_function:
            child.replace(exp.cast(child.copy(), "BIGINT"))


def at_extreme(select):
    """Beside a single min() or max() SQLite takes what is neither grouped nor summed up from the row that has it."""
    aggregates = [node for projection in select.expressions for node in projection.find_all(exp.AggFunc)
                  if node.find_ancestor(exp.Select) is select]
    extremes = [node for node in aggregates if isinstance(node, (exp.Min, exp.Max))]
    if len(extremes) != 1 or isinstance(extremes[0].parent, exp.Filter):
        return None
    of, key = (exp.ArgMin if isinstance(extremes[0], exp.Min) else exp.ArgMax), extremes[0].this
    return lambda column: of(this=column.copy(), expression=key.copy())


def bare_columns(tree):
    """A column that is neither grouped nor summed up is of the row of a single min() or max(); else the same in all of the group."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        if not group:
            continue
        grouped = set(group.expressions)
        chosen_of = at_extreme(select) or (lambda column: exp.AnyValue(this=column.copy()))
        for projection in select.expressions:
            inner = projection.unalias()
            if inner in grouped:
                continue
            for column in list(projection.find_all(exp.Column)):
                if column in grouped or column.find_ancestor(exp.AggFunc, exp.Filter) or \
                        column.find_ancestor(exp.Select) is not select:
                    continue
                value = chosen_of(column)
                column.replace(exp.alias_(value, column.name) if column is projection else value)


def wide_integers(tree):
    """SQLite's INTEGER has 64 bits."""
    for node in tree.find_all(exp.Cast):
        if node.to.this == exp.DataType.Type.INT:
            node.set("to", exp.DataType.build("BIGINT"))


# ---- DuckDB's ----


def arguments_that_are_null(tree):
    """DuckDB's arg_max and arg_min pass over rows whose value is NULL."""
    for node in list(tree.find_all(exp.ArgMax, exp.ArgMin)):
        name = "arg_max_null" if isinstance(node, exp.ArgMax) else "arg_min_null"
        node.replace(exp.func(name, node.this.copy(), node.expression.copy()))


def sums(tree):
    """A sum of integers is one of 128 bits in DuckDB."""
    for node in list(tree.find_all(exp.Sum)):
        outer = node.parent if isinstance(node.parent, exp.Filter) else node
        outer.replace(exp.cast(outer.copy(), "BIGINT"))


# ---- Spark's ----


def not_materialized(tree):
    for cte in tree.find_all(exp.CTE):
        cte.set("materialized", None)


def chosen(select):
    """A scalar subquery that looks around itself has to be an aggregate: ORDER BY … LIMIT 1 is the value at the least key."""
    value, order, limit = select.expressions[0], select.args.get("order"), select.args.get("limit")
    if value.unalias().find(exp.AggFunc) or select.args.get("group"):
        return
    inner, alias = value.unalias(), value.alias
    if not limit:
        new = exp.AnyValue(this=inner.copy())
    else:
        assert order and limit.expression.name == "1", select.sql()
        key = [o.this.copy() if not o.args.get("desc") else exp.Neg(this=o.this.copy()) for o in order.expressions]
        offset = select.args.get("offset")
        if offset:
            assert [o.this for o in order.expressions] == [inner], select.sql()
            new = exp.func("try_element_at", exp.func("sort_array", exp.func("collect_list", inner.copy())),
                           exp.Literal.number(int(offset.expression.name) + 1))
        else:
            new = exp.func("min_by", inner.copy(), key[0] if len(key) == 1 else exp.func("struct", *key))
    select.set("expressions", [exp.alias_(new, alias) if alias else new])
    for name in ("order", "limit", "offset"):
        select.set(name, None)


def subqueries(tree):
    for node in list(tree.find_all(exp.Subquery)):
        if isinstance(node.parent, (exp.From, exp.Join, exp.In)) or not isinstance(node.this, exp.Select):
            continue
        if isinstance(node.this.args.get("with_") or node.this.args.get("with"), exp.With):
            continue
        chosen(node.this)


def exists_as_value(tree):
    """EXISTS is a condition of WHERE alone; elsewhere its rows are counted."""
    for node in list(tree.find_all(exp.Exists)):
        if node.find_ancestor(exp.Where, exp.Select) and isinstance(node.find_ancestor(exp.Where, exp.Select), exp.Where):
            continue
        select = node.this.copy()
        if isinstance(select, exp.Subquery):
            select = select.this
        select.set("expressions", [exp.Count(this=exp.Star())])
        node.replace(exp.paren(exp.GT(this=exp.Subquery(this=select), expression=exp.Literal.number(0))))


def in_subquery_as_value(tree):
    """IN (SELECT …) likewise; elsewhere the set of its values stands beside the rows."""
    for node in list(tree.find_all(exp.In)):
        query, around = node.args.get("query"), node.find_ancestor(exp.Filter, exp.Where, exp.Select)
        if not query or isinstance(around, exp.Where) and not around.find_ancestor(exp.Filter):
            continue
        inner = query.this if isinstance(query, exp.Subquery) else query
        known = exp.select(exp.alias_(exp.func("collect_set", inner.expressions[0].unalias().copy()), "names"))
        known.set("from_", inner.args["from_"].copy())
        node.find_ancestor(exp.Select).join(known.subquery("known"), join_type="cross", copy=False)
        node.replace(exp.func("array_contains", exp.func("any_value", exp.column("names", "known"))
                              if not node.find_ancestor(exp.Filter) else exp.column("names", "known"), node.this.copy()))


def subqueries_of_joins(tree):
    """What looks around itself stands in WHERE, not in ON."""
    for join in tree.find_all(exp.Join):
        on = join.args.get("on")
        if on and on.find(exp.Subquery) and not join.args.get("side"):
            join.parent.where(on.copy(), copy=False)
            join.set("on", None)
            join.set("kind", "CROSS")


def numbered_rows(tree):
    """OVER () has no order, and Spark wants one; its numbers have 32 bits."""
    for window in list(tree.find_all(exp.Window)):
        if not window.args.get("partition_by") and not window.args.get("order"):
            window.set("order", exp.Order(expressions=[exp.Ordered(this=exp.func("monotonically_increasing_id"))]))
        if isinstance(window.this, exp.RowNumber):
            window.replace(exp.cast(window.copy(), "BIGINT"))


def subqueries_within(tree):
    """A subquery looks one level out, not two: of what it lies in, which finds a row by its key, a join is made."""
    for node in list(tree.find_all(exp.Subquery)):
        if isinstance(node.parent, (exp.From, exp.Join)) or not isinstance(node.this, exp.Select):
            continue
        value, where, of = node.this.expressions[0].unalias(), node.this.args.get("where"), node.this.args["from_"].this
        if value.find(exp.Subquery) and not node.this.args.get("joins") and not node.this.args.get("limit"):
            node.find_ancestor(exp.Select).join(of.copy(), on=where.this.copy(), join_type="left", copy=False)
            node.replace(exp.paren(value.copy()))


# How many hops a host is from the first one, hop after hop. SQLite's view walks over lists of hosts in a recursion with a query
# that looks at the row around it: Spark has no such thing, and DuckDB 1.5.5 answers it wrong. Spark writes a query out at each
# place that reads it, so that one query a hop would be more than memory: there one expression walks over all links in one row.
MOST_HOPS = 8
DUCKDB_HOPS = ",\n".join([
    "hop0 AS (SELECT host FROM first)",
    *(f"hop{n} AS (SELECT host FROM hop{n - 1} UNION SELECT l.other FROM hop{n - 1} h JOIN link l ON l.host = h.host)"
      for n in range(1, MOST_HOPS + 1)),
    "distance AS (SELECT host, min(hops) AS hops FROM ("
    + " UNION ALL ".join(f"SELECT host, {n} AS hops FROM hop{n}" for n in range(MOST_HOPS + 1)) + ") GROUP BY host)"])
SPARK_HOPS = f"""\
links AS (SELECT collect_list(struct(host, other)) AS all FROM (SELECT DISTINCT host, other FROM link)),
walk AS (
  SELECT aggregate(sequence(1, {MOST_HOPS}), map(f.host, CAST(0 AS BIGINT)), (reached, hop) -> map_concat(reached,
    map_from_entries(transform(array_distinct(transform(filter(l.all,
      e -> map_contains_key(reached, e.host) AND NOT map_contains_key(reached, e.other)), e -> e.other)),
      host -> struct(host, CAST(hop AS BIGINT)))))) AS reached
  FROM first f CROSS JOIN links l WHERE f.host IS NOT NULL),
distance AS (SELECT explode(reached) AS (host, hops) FROM walk)"""
SPARK_PLACE_OF_HOPS = re.compile(r"\bdistance AS \(.*?\n\)", re.S)
HOPS_OF_SQLITE = re.compile(r"\bwalk\(hops.*?\bdistance AS MATERIALIZED .*?GROUP BY n\.host\)", re.S)

# What a view's recursion finds for each row by itself, found for all at once.
PHASE_NAMED = """\
WITH RECURSIVE around(id, kind, parent_id) AS (
  SELECT id, kind, parent_id FROM phase
  UNION ALL
  SELECT a.id, p.kind, p.parent_id FROM around a JOIN phase p ON p.id = a.parent_id WHERE a.kind = 'user')
SELECT id, coalesce(min(kind) FILTER (WHERE kind <> 'user'), min(kind)) AS kind FROM around GROUP BY id"""

RANGE_PATH = """\
WITH RECURSIVE around(of, id, depth) AS (
  SELECT id, id, 0 FROM phase
  UNION ALL
  SELECT a.of, p.parent_id, a.depth + 1 FROM around a JOIN phase p ON p.id = a.id WHERE p.parent_id IS NOT NULL)
SELECT a.of AS id, listagg(l.label, ' > ') WITHIN GROUP (ORDER BY a.depth DESC) AS path
FROM around a JOIN range_label l ON l.id = a.id GROUP BY a.of"""
SPARK_VIEWS = {"phase_named": PHASE_NAMED, "range_path": RANGE_PATH}

COMMON = (joins, null_safe, whole_division, fractions, like, greatest, named_values, numbers, conditions, bare_columns,
          wide_integers)
OWN = {"duckdb": (sums, arguments_that_are_null), "spark": (not_materialized, exists_as_value, in_subquery_as_value, subqueries_within, subqueries,
                  subqueries_of_joins, numbered_rows)}


def translated(sql, engine):
    """CREATE VIEW name AS … of SQLite as (name, SELECT in the engine's words)."""
    sql = re.sub(r"--[^\n]*", "", sql)
    sql = re.sub(r"\bINDEXED BY \w+", "", sql)
    sql = re.sub(r"\binner\b", '"inner"', sql)  # a name: the views write SQL's own words in capitals
    sql = HOPS_OF_SQLITE.sub(DUCKDB_HOPS if engine == "duckdb" else "distance AS (SELECT host, 0 AS hops FROM link)", sql)
    tree = sqlglot.parse_one(sql, read="sqlite")
    name, query = tree.this.name, tree.expression
    if engine == "spark" and name in SPARK_VIEWS:
        return name, SPARK_VIEWS[name]
    for change in (*COMMON, *OWN[engine]):
        change(query)
    text = query.sql(dialect=engine, pretty=True, max_text_width=120)
    if engine == "spark" and name == "host_clock":
        text = SPARK_PLACE_OF_HOPS.sub(lambda _: SPARK_HOPS, text)
    return name, text


HEADER = {"duckdb": """-- The tables and views of one run of a lake, for DuckDB. Generated by scripts/update-lake-views; docs/scale.md says more.
--   SET VARIABLE lake = '/shared/lake'; SET VARIABLE run = 'before-change';   (the runs: ls /shared/lake/rank)
--   .read /shared/lake/views.duckdb.sql
""", "spark": """-- The tables and views of one run of a lake, for Spark. Generated by scripts/update-lake-views; docs/scale.md says more.
--   spark-sql -d lake=/shared/lake -d run=before-change -i /shared/lake/views.spark.sql
-- From PySpark: shardledger.lake.spark_views(session, "/shared/lake", "before-change").
"""}
TYPES = {"duckdb": {"INTEGER": "BIGINT", "REAL": "DOUBLE", "TEXT": "VARCHAR"},
         "spark": {"INTEGER": "BIGINT", "REAL": "DOUBLE", "TEXT": "STRING"}}


def tables():
    """[(name, [(column, type)], whether it is the same in all ledgers)] of tables.def."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        for statement in statements("table"):
            database.execute(statement)
        for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid").fetchall():
            columns = database.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
            yield name, [column[:2] for column in columns], any(kind == "TEXT" and key for _, kind, key in columns)


def table_views(engine):
    """Each table, of the chosen run. What is keyed by a name, every node has: once is enough."""
    for name, columns, common in tables():
        names, distinct = ", ".join(column for column, _ in columns), "DISTINCT " if common else ""
        if engine == "duckdb":
            yield (f"CREATE OR REPLACE VIEW {name} AS SELECT {distinct}{names}\n"
                   f"FROM read_parquet(getvariable('lake') || '/{name}/*/*.parquet', hive_partitioning = true, "
                   "hive_types = {'run': VARCHAR})\nWHERE run = getvariable('run');")
        else:
            types = ", ".join(f"{column} {TYPES[engine][kind]}" for column, kind in columns)
            yield (f"CREATE OR REPLACE TEMPORARY VIEW lake_{name}({types}, run STRING)\n"
                   f"USING parquet OPTIONS (path '${{lake}}/{name}');\n\n"
                   f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT {distinct}{names} FROM lake_{name} WHERE run = '${{run}}';")


def shared_text():
    """The tables of a ledger whose ranks share rows, all of them, as lake.py asks DuckDB for them: NAME: SELECT …;"""
    def query(sql):
        return re.sub(r"\b(FROM|JOIN) (own_\w+|rank_rows)\b", r"\1 ledger.\2", sql)

    return "\n".join(["-- Rows of tables that ranks share (storage/tables/shared_tables.h). Generated by scripts/update-lake-views.", "",
                      *(f"{name}: {query(sql)} ORDER BY 1;\n" for name, sql in shared_views().items())])


def file_text(engine):
    kind = {"duckdb": "VIEW", "spark": "TEMPORARY VIEW"}[engine]
    views = (f"CREATE OR REPLACE {kind} {name} AS\n{query};" for name, query in (
        translated(sql, engine) for sql in statements("view")))
    return "\n".join([HEADER[engine], *(f"{text}\n" for text in (*table_views(engine), *views))])
