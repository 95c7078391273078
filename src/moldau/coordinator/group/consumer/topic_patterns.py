"""What the regular expressions of a group's members stand for, and when they are matched against the topics again.

A new expression is matched at once. The others are matched again when there are new topics, but not more often than
every ten seconds, and from time to time anyway. With many topics that is done in steps, between which others work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.records import Resolved, regex_record, regex_tombstone
from moldau.coordinator.group.patterns.automaton import topic_pattern
from moldau.coordinator.group.patterns.syntax import InvalidPattern
from moldau.coordinator.timers import interval_is_over
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from moldau.coordinator.group.consumer.groups import ConsumerGroups
    from moldau.coordinator.group.shard import GroupShard

MayDescribe: TypeAlias = Callable[[str], bool]
"""Whether the member in whose name an expression is matched may know of a topic."""

Matching: TypeAlias = Generator[None, None, dict[str, Resolved]]

SHORTEST_INTERVAL_MS: Final = 10_000
# How much of the expressions' states one step may look at, a few milliseconds of work for usual ones.
_STEP: Final = 20_000
_UNRESOLVED: Final = Resolved(frozenset(), -1, 0)


class PatternChange(NamedTuple):
    """What a member's request does to the expressions of its group."""

    # What they stand for from now on.
    resolved: Mapping[str, Resolved]
    # Whether the group reads other topics now.
    changes_topics: bool = False
    # Whether the member has another expression now.
    resubscribed: bool = False


def check_pattern(regex: str) -> None:
    try:
        topic_pattern(regex)
    except InvalidPattern as reason:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
        ) from reason


class TopicPatterns:
    def __init__(self, shard: GroupShard, groups: ConsumerGroups) -> None:
        self._shard = shard
        self._groups = groups
        # The first version of the metadata that has all topics of today.
        self.newest_topics = -1

    def update(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        may_describe: MayDescribe,
        records: list[CoordinatorRecord],
    ) -> PatternChange:
        old, new = member.regex or "", updated.regex or ""
        if old == new and not group.regex_counts:
            return PatternChange(group.regexes)
        resolved = dict(group.regexes)
        wanted = set(group.regex_counts)
        changes_topics = False
        if old != new:
            if new and new not in wanted:
                check_pattern(new)
            if old and group.regex_counts[old] == 1:
                records.append(regex_tombstone(group.group_id, old))
                resolved.pop(old, None)
                wanted.discard(old)
            changes_topics = not new or new in resolved
            if new:
                wanted.add(new)
        for regex, found in self._refresh(group.group_id, wanted, resolved, may_describe).items():
            records.append(regex_record(group.group_id, regex, found))
            changes_topics |= found.topics != resolved.get(regex, _UNRESOLVED).topics
            resolved[regex] = found
        return PatternChange(resolved, changes_topics, old != new)

    def _refresh(
        self, group_id: str, wanted: set[str], known: Mapping[str, Resolved], may_describe: MayDescribe
    ) -> dict[str, Resolved]:
        """What is found at once; what takes longer is found later."""
        host = self._shard.host
        timer = ("regex", group_id)
        if not wanted or host.timers.is_scheduled(timer):
            return {}
        regexes = sorted(wanted - known.keys()) or self._due(wanted, known)
        if not regexes:
            return {}
        matching = self._match(regexes, may_describe)
        try:
            next(matching)
        except StopIteration as finished:
            found: dict[str, Resolved] = finished.value
            return found
        self._go_on(group_id, matching)
        return {}

    def _due(self, wanted: set[str], known: Mapping[str, Resolved]) -> list[str]:
        now = self._shard.clock.now_ms()
        oldest = min(known[regex].timestamp_ms for regex in wanted)
        outdated = any(known[regex].version < self.newest_topics for regex in wanted)
        interval = self._shard.config().integer("group.consumer.regex.refresh.interval.ms")
        # Strictly longer ago, as Kafka has it.
        due = interval_is_over(oldest, (SHORTEST_INTERVAL_MS if outdated else interval) + 1, now)
        return sorted(wanted) if due else []

    def _match(self, regexes: Sequence[str], may_describe: MayDescribe) -> Matching:
        image = self._shard.image
        patterns = [topic_pattern(regex) for regex in regexes]
        found: list[set[str]] = [set() for _ in patterns]
        names = list(image.topics_by_name)
        step = max(1, _STEP // sum(pattern.size for pattern in patterns))
        for start in range(0, len(names), step):
            if start:
                yield
            for name in names[start : start + step]:
                for pattern, topics in zip(patterns, found, strict=True):
                    if pattern.matches(name) and may_describe(name):
                        topics.add(name)
        now = self._shard.clock.now_ms()
        return {
            regex: Resolved(frozenset(topics), image.offset, now) for regex, topics in zip(regexes, found, strict=True)
        }

    def _go_on(self, group_id: str, matching: Matching) -> None:
        host = self._shard.host

        def step() -> None:
            try:
                next(matching)
            except StopIteration as finished:
                found: dict[str, Resolved] = finished.value
                host.perform(lambda: self._found(group_id, found))
            else:
                self._go_on(group_id, matching)

        host.timers.schedule(("regex", group_id), 0, step)

    def _found(self, group_id: str, found: Mapping[str, Resolved]) -> Decision[None]:
        """The last step is over; members may have come and gone meanwhile."""
        group = self._groups.get(group_id)
        if group is None:
            return Decision(None)
        records: list[CoordinatorRecord] = []
        resolved = dict(group.regexes)
        changed = False
        for regex, topics in found.items():
            if regex not in group.regex_counts:
                continue
            records.append(regex_record(group_id, regex, topics))
            changed |= topics.topics != resolved.get(regex, _UNRESOLVED).topics
            resolved[regex] = topics
        self._groups.subscriptions.bump(group, group.topics_after((), (), resolved.values()), changed, records)
        return Decision(None, records)
