"""One share fetch that reads: now, or when there is something to give, or when its time is up.

Decides how the bytes and records of a fetch are shared between its partitions, and when there is enough. It waits for
records that are appended and for records that other members give back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.share_answer import PartitionAnswer
from moldau.broker.share_partitions import LedSharePartition
from moldau.broker.share_reads import bytes_available, first_offset, read_and_acquire, visible_end
from moldau.log.partition_log import PartitionLog
from moldau.ports import Pending, Timer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.share_fetch_request import ShareFetchRequest
from moldau.share.acquiring import Wish
from moldau.share.sessions import PartitionKey, ShareSession, in_turn

if TYPE_CHECKING:
    from moldau.broker.share_fetch import ShareFetchHandlers

log = logging.getLogger("moldau.broker")

RECORD_LIMIT: Final = 1
"""The acquire mode in which a fetch never gives more records than it was asked for."""
_READ_COMMITTED: Final = "read_committed"


class _Ready(NamedTuple):
    led: LedSharePartition
    log: PartitionLog
    offset: int


class WaitingFetch:
    __slots__ = (
        "_available",
        "_committed_only",
        "_handlers",
        "_led",
        "_over",
        "_request",
        "_session",
        "_timer",
        "_woken",
        "answers",
        "max_bytes",
        "min_bytes",
        "promise",
        "wanted",
    )

    def __init__(
        self,
        handlers: ShareFetchHandlers,
        request: ShareFetchRequest,
        session: ShareSession,
        wanted: list[PartitionKey],
        answers: dict[PartitionKey, PartitionAnswer],
    ) -> None:
        self._handlers = handlers
        self._request = request
        self._session = session
        self.wanted = in_turn(wanted, request.share_session_epoch)
        # What is known of each partition; errors stand here from the beginning.
        self.answers = answers
        self.max_bytes = min(request.max_bytes, handlers.max_bytes())
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        config = handlers.partitions.config_of(session.group_id)
        self._committed_only = config.share_isolation_level == _READ_COMMITTED
        self._led: list[LedSharePartition] = []
        # Bytes that were there when it was last looked at.
        self._available = 0
        self._woken = False
        self._timer: Timer | None = None
        self._over: Callable[[], None] | None = None
        self.promise: Pending[dict[PartitionKey, PartitionAnswer]] = Pending()

    # ---- the first look

    def begin(self) -> bool:
        """Find the share partitions; whether the answers are complete already."""
        group_id = self._session.group_id
        for key in self.wanted:
            try:
                led, loaded = self._handlers.partitions.open(group_id, key)
            except ApiError as error:
                self.answers[key] = PartitionAnswer(error=error)
                continue
            self._led.append(led)
            if loaded is not None:
                loaded.then(self._when_loaded(key))
        return not self._led or self._attempt(last_chance=self._request.max_wait_ms <= 0)

    def _when_loaded(self, key: PartitionKey) -> Callable[[ApiError | None], None]:
        def loaded(error: ApiError | None) -> None:
            if error is not None and not self.promise.done:
                self.answers[key] = PartitionAnswer(error=error)

        return loaded

    # ---- giving

    def _attempt(self, *, last_chance: bool) -> bool:
        """Give what there is, if that is enough or there is no more time; whether the answers are complete."""
        failed = False
        ready: list[_Ready] = []
        for led in self._led:
            if led.key in self.answers:
                continue
            try:
                found = self._look_at(led)
            except ApiError as error:
                self._fail(led, error)
                failed = True
            except Exception:
                self._fail(led, _our_fault(led))
                failed = True
            else:
                if found is not None:
                    ready.append(found)
        if not (failed or last_chance or self._is_enough(ready)):
            return False
        self._give(ready)
        return True

    def _look_at(self, led: LedSharePartition) -> _Ready | None:
        partition = led.partition
        if not partition.is_leader and not self._handlers.services.partitions.knows_id(led.key.topic_id):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.require_leader()
        if not led.share.is_active:
            return None
        partition_log = partition.log
        offset = first_offset(led, partition_log)
        return _Ready(led, partition_log, offset) if led.share.can_acquire() else None

    def _fail(self, led: LedSharePartition, error: ApiError) -> None:
        self.answers[led.key] = PartitionAnswer(error=error)
        self._handlers.partitions.failed(self._session.group_id, led.key, error)

    def _is_enough(self, ready: list[_Ready]) -> bool:
        committed_only = self._committed_only
        if self.min_bytes <= 1:
            return any(each.offset < visible_end(each.log, committed_only=committed_only) for each in ready)
        share = self._share(len(ready))
        total = 0
        for each in ready:
            limit = min(share, self.min_bytes - total)
            try:
                total += bytes_available(each.log, each.offset, limit, committed_only=committed_only)
            except ApiError:
                # Whoever waits for bytes of a disk that fails is told so by the read that follows.
                return True
            if total >= self.min_bytes:
                return True
        self._available = total
        return False

    def _share(self, partitions: int) -> int:
        return max(self.max_bytes // max(partitions, 1), 1)

    def _give(self, ready: list[_Ready]) -> None:
        request = self._request
        share = self._share(len(ready))
        left = request.max_records
        given_any = False
        for led, _, offset in ready:
            answer = self.answers[led.key] = PartitionAnswer()
            if left <= 0:
                continue
            wish = Wish(
                self._session.member_id,
                offset,
                left,
                request.batch_size,
                record_limit=request.share_acquire_mode == RECORD_LIMIT,
            )
            try:
                read = read_and_acquire(
                    led, wish, share, committed_only=self._committed_only, min_one_message=not given_any
                )
            except ApiError as error:
                self._fail(led, error)
                continue
            except Exception:
                self._fail(led, _our_fault(led))
                continue
            answer.records = read.records
            answer.given = read.acquired.given
            left -= read.acquired.records
            if len(read.records):
                given_any = True
                led.partition.bytes_out += len(read.records)

    # ---- waiting

    def wait(self, max_wait_ms: int, over: Callable[[], None]) -> None:
        """Until there is enough, at most so long; `over` is called when it no longer waits."""
        self._over = over
        self._timer = self._handlers.services.clock.call_later(max_wait_ms, self._time_is_up)
        self._listen()

    def _listen(self) -> None:
        for led in self._led:
            led.wait(self)

    @property
    def is_patient(self) -> bool:
        return self.min_bytes > 1

    def heard(self, new_bytes: int) -> None:
        """More can be read of a partition."""
        self._available += new_bytes
        if self._available >= self.min_bytes:
            self.look_again()

    def look_again(self) -> None:
        """Something may be available that was not."""
        if not self._woken and self._timer is not None:
            self._woken = True
            self._handlers.wake(self)

    def look(self) -> None:
        if self._timer is None:
            return
        if self._attempt(last_chance=False):
            self._finish()
        else:
            self._woken = False
            self._listen()

    def _time_is_up(self) -> None:
        if self._timer is not None:
            self._attempt(last_chance=True)
            self._finish()

    def _finish(self) -> None:
        self.abandon()
        self.promise.resolve(self.answers)

    def abandon(self) -> None:
        """Wait no longer: it is answered, or nobody is there to read the answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for led in self._led:
            led.stop_waiting(self)
        if self._woken:
            # What it did not take is there for the next one, who was not woken because of it.
            for led in self._led:
                led.pass_on()
        if self._over is not None:
            self._over()
            self._over = None


def _our_fault(led: LedSharePartition) -> ApiError:
    """To be called where an exception is handled that should not have been: the log says which."""
    log.exception("reading partition %s-%d for a share group failed", led.partition.topic, led.key.partition)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
