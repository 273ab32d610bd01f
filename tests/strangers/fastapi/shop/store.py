"""The database: offers, payment records, sessions, reputation."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import JSON, BigInteger, String, delete, event, select, update
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from .config import INDEX_BATCH, bug


class Base(DeclarativeBase):
    type_annotation_map = {int: BigInteger, dict[str, Any]: JSON}


class Offer(Base):
    """A payment requirement we issued. state: issued -> settling -> settled; settling -> issued if it failed."""

    __tablename__ = "offers"
    payment_id: Mapped[str] = mapped_column(primary_key=True)
    terms: Mapped[dict[str, Any]]
    duration: Mapped[int | None]  # seconds of the session, when the offer is a deposit
    issued_at: Mapped[float]
    state: Mapped[str] = mapped_column(String, default="issued", index=True)
    authorization: Mapped[dict[str, Any] | None]
    # One authorization pays for one offer, whatever the facilitator says about it.
    authorization_key: Mapped[str | None] = mapped_column(unique=True)
    settled_ms: Mapped[int | None]
    delivered: Mapped[bool] = mapped_column(default=False)  # the receipt has been answered


class Payment(Base):
    __tablename__ = "payments"
    payment_id: Mapped[str] = mapped_column(primary_key=True)
    tx_hash: Mapped[str]
    from_address: Mapped[str]
    to_address: Mapped[str]
    amount: Mapped[str]
    resource_url: Mapped[str]
    status: Mapped[str]
    block_number: Mapped[int | None] = mapped_column(index=True)
    timestamp: Mapped[int]


class Budget(Base):
    """A session. state: open -> expired (refund due) -> refunded, or closed when nothing was left."""

    __tablename__ = "sessions"
    id: Mapped[str] = mapped_column(primary_key=True)
    payment_id: Mapped[str] = mapped_column(unique=True)
    payer: Mapped[str]
    deposited: Mapped[int]
    released: Mapped[int] = mapped_column(default=0)
    expires_at: Mapped[float] = mapped_column(index=True)
    state: Mapped[str] = mapped_column(String, default="open", index=True)
    refund_tx: Mapped[str | None]
    refund_tries: Mapped[int] = mapped_column(default=0)
    refund_after: Mapped[float] = mapped_column(default=0.0)


class Reputation(Base):
    __tablename__ = "reputation"
    resource: Mapped[str] = mapped_column(primary_key=True)
    matched: Mapped[int] = mapped_column(default=0)


T = TypeVar("T", bound=Base)


class Store:
    def __init__(self, path: str) -> None:
        self._engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        self._sessions = async_sessionmaker(self._engine, expire_on_commit=False)
        # SQLite has one writer; queueing here is fairer than its busy timeout.
        self._writer = asyncio.Lock()

        @event.listens_for(self._engine.sync_engine, "connect")
        def _pragmas(connection: Any, _: object) -> None:
            cursor = connection.cursor()
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA busy_timeout=10000")
            cursor.close()

    async def open(self) -> None:
        async with self._engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)

    async def close(self) -> None:
        await self._engine.dispose()

    @contextlib.asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        async with self._writer, self._sessions.begin() as session:
            yield session

    async def get(self, kind: type[T], key: str) -> T | None:
        async with self._sessions() as session:
            return await session.get(kind, key)

    async def all(
        self, kind: type[T], *where: Any, order: Any = None, limit: int | None = None
    ) -> Sequence[T]:
        async with self._sessions() as session:
            return (
                await session.scalars(select(kind).where(*where).order_by(order).limit(limit))
            ).all()

    async def save(self, row: Base) -> None:
        async with self.write() as session:
            await session.merge(row)

    async def change(self, kind: type[T], *where: Any, **values: Any) -> bool:
        """Update what still matches; tell whether anything did."""
        async with self.write() as session:
            result = await session.execute(update(kind).where(*where).values(**values))
            return bool(result.rowcount)  # type: ignore[attr-defined]

    async def drop_old_offers(self, before: float) -> None:
        async with self.write() as session:
            await session.execute(
                delete(Offer).where(Offer.state == "issued", Offer.issued_at < before)
            )

    async def unindexed(self) -> Sequence[Payment]:
        return await self.all(
            Payment,
            Payment.block_number.is_(None),
            order=Payment.timestamp.desc(),
            limit=INDEX_BATCH,
        )

    async def matched(self, payment: Payment, block: int) -> None:
        async with self.write() as session:
            await session.execute(
                update(Payment)
                .where(Payment.payment_id == payment.payment_id)
                .values(block_number=block, status="settled")
            )
            if bug("no_reputation"):
                return
            row = insert(Reputation).values(resource=payment.resource_url, matched=1)
            await session.execute(
                row.on_conflict_do_update(
                    index_elements=["resource"], set_={"matched": Reputation.matched + 1}
                )
            )
