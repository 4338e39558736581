"""SQL over streams: totals of each minute, of which another query keeps the large ones."""

from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy


@dataclass(frozen=True)
class Sale:
    product: str
    cents: int | None
    ts: int


job = Job("sales")
sales = job.from_elements(
    Sale("tea", 250, 0),
    Sale("cup", 900, 20_000),
    Sale("tea", None, 40_000),
    Sale("tea", 300, 61_000),
    watermarks=WatermarkStrategy.bounded_out_of_orderness("5 s", event_time="ts"),
)
minutes = job.sql(
    """
    SELECT product, window_start, COUNT(*) AS sold, COALESCE(SUM(cents), 0) AS cents
    FROM TABLE(TUMBLE(TABLE sales, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
    GROUP BY product, window_start, window_end
    """,
    sales=sales,
    uid="minutes",
)
large = job.sql(
    "SELECT UPPER(product) AS product, cents / 100 AS euros FROM m WHERE cents > 260",
    m=minutes,
)
rows = large.collect()

if __name__ == "__main__":
    job.run(master="threads[1]")
    print(
        list(rows)
    )  # [{'product': 'CUP', 'euros': 9}, {'product': 'TEA', 'euros': 3}]
