"""A Ray dataset as a table: its blocks are read one after the other, or by workers of the cluster.

Blocks stay in the object store, which moves them to disk where memory is short; one block at a time
is in this process. Their order is that of the dataset, so that results can be repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scopeval.data.table_sources import Part, reading
from scopeval.errors import InputError

__all__ = ["BlockTable", "is_ray_dataset", "open_ray_dataset"]


@dataclass(frozen=True)
class BlockTable:
    """Blocks of a dataset.

    Attributes:
        source: name in messages.
        names: of the columns.
        blocks: references of Arrow tables.
        sizes: rows of each block.
        batch_rows: the most rows of a part.
    """

    source: str
    names: Sequence[str]
    blocks: tuple[Any, ...]
    sizes: tuple[int, ...]
    batch_rows: int

    @property
    def rows(self) -> int:
        """Rows in all blocks."""
        return sum(self.sizes)

    def pieces(self) -> list[BlockTable]:
        """Each block alone."""
        return [
            replace(self, source=f"{self.source}, block {k}", blocks=(block,), sizes=(size,))
            for k, (block, size) in enumerate(zip(self.blocks, self.sizes, strict=True))
        ]

    def without_rows(self) -> BlockTable:
        """No block."""
        return replace(self, blocks=(), sizes=())

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """At most `batch_rows` rows at a time; never more than one block in memory."""
        import ray

        for block in self.blocks:
            with reading(self.source, "a block"):
                table = ray.get(block)
            for row in range(0, table.num_rows, self.batch_rows):
                some = table.slice(row, self.batch_rows)
                yield Part(self.source, {name: some.column(name) for name in names}, row)


def is_ray_dataset(source: object) -> bool:
    """Whether it is one; who has one has loaded ray.data."""
    module = sys.modules.get("ray.data")
    return module is not None and isinstance(source, module.Dataset)


def open_ray_dataset(source: Any, batch_rows: int) -> BlockTable:
    """Compute the dataset, in its own order."""
    import ray

    source.context.execution_options.preserve_order = True
    blocks = tuple(source.to_arrow_refs())
    if not blocks:
        raise InputError("source: got a Ray dataset without blocks, expected rows")
    shape = ray.remote(_shape)  # counted where the blocks are
    shapes = ray.get([shape.remote(block) for block in blocks])
    names = next((found for size, found in shapes if size), shapes[0][1])
    return BlockTable("Ray dataset", names, blocks, tuple(size for size, _ in shapes), batch_rows)


def _shape(table: Any) -> tuple[int, list[str]]:
    """Rows and names of a block."""
    return int(table.num_rows), list(table.column_names)
