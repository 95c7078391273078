"""Raising and lowering the cluster's finalised features.

All updates of a request take effect or none does. A level is only finalised when every registered broker and
controller supports it, and going back is refused where records would be lost by it.
"""

from __future__ import annotations

from typing import Final

from moldau.controller.configs import MIN_ISR
from moldau.controller.decision import Decision, Situation
from moldau.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    ELR_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    UNSUPPORTED,
    FeatureError,
    VersionRange,
    changes_records,
    check_dependencies,
)
from moldau.metadata.image import BROKER_RESOURCE
from moldau.metadata.records import MetadataRecord
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.metadata.config_record import ConfigRecord
from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord
from moldau.protocol.generated.wire.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.generated.wire.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


def update_features(s: Situation, request: UpdateFeaturesRequest) -> Decision[UpdateFeaturesResponse]:
    updates = request.feature_updates
    names = [update.feature for update in updates]
    proposed = {**s.state.features, **{update.feature: update.max_version_level for update in updates}}
    records: list[MetadataRecord] = []
    try:
        if len(set(names)) != len(names):
            raise ApiError(ErrorCode.INVALID_REQUEST, "Each feature may be updated once in a request.")
        for update in updates:
            records += _update(s, update, proposed)
    except ApiError as error:
        return Decision([], _answer(names, s.api_version, error))
    if proposed.get(ELR_VERSION, 0) > 0 and ELR_VERSION in names:
        records = _elr_safety_records(s) + records
    answer = _answer(names, s.api_version, None)
    if request.validate_only:
        return Decision([], answer)
    return Decision(records, answer, dynamic_voters=proposed.get(KRAFT_VERSION, 0) > s.kraft_version)


def _answer(names: list[str], version: int, error: ApiError | None) -> UpdateFeaturesResponse:
    """Up to version 1 an answer lists every feature; after that only the first error there is."""
    response = UpdateFeaturesResponse(error_message=None)
    if error is not None:
        response.error_code = error.code
        # Tools show this sentence as it is, and scripts look for it.
        response.error_message = (
            f"The update failed for all features since the following feature had an error: {error.message}"
        )
    elif version < 2:
        response.results = [UpdatableFeatureResult(feature=name, error_message=None) for name in names]
    return response


def _update(s: Situation, update: FeatureUpdateKey, proposed: dict[str, int]) -> list[MetadataRecord]:
    name, level = update.feature, update.max_version_level
    kind = update.upgrade_type
    if s.api_version == 0:
        kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    current = s.kraft_version if name == KRAFT_VERSION else s.state.features.get(name, 0)
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    reason = _reason_not_supported(s, name, level)
    if reason is not None:
        raise _invalid(name, level, reason)
    if level < current and kind == UPGRADE:
        raise _invalid(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > current and kind != UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        _check_metadata_version(current, level, kind)
    elif name == KRAFT_VERSION:
        if level < current:
            raise _invalid(name, level, "Can't downgrade the version of this feature.")
        why_not = s.why_not_dynamic_voters() if level > current else None
        if why_not is not None:
            raise _invalid(name, level, why_not)
        return []
    else:
        try:
            check_dependencies(name, level, proposed)
        except FeatureError as error:
            raise _invalid(name, level, str(error)) from error
    return [FeatureLevelRecord(name=name, feature_level=level)]


def _invalid(name: str, level: int, reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}")


def _check_metadata_version(current: int, level: int, kind: int) -> None:
    if level >= current or not changes_records(current, level):
        return
    if kind == UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    else:
        reason = "Refusing to perform the requested downgrade because it might delete metadata information."
    raise ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
    )


def _reason_not_supported(s: Situation, name: str, level: int) -> str | None:
    """Who of the cluster could not work with this level."""
    nodes: list[tuple[str, VersionRange]] = [
        (f"Local controller {s.node_id}", s.supported.get(name, UNSUPPORTED)),
        *((f"Broker {b.id}", b.features.get(name, UNSUPPORTED)) for b in s.state.brokers.values()),
    ]
    controllers = s.state.sections.controllers
    if s.state.metadata_version >= CONTROLLER_REGISTRATION_SINCE:
        nodes += [
            (f"Controller {c.id}", c.features.get(name, UNSUPPORTED)) for c in controllers.values() if c.id != s.node_id
        ]
    if name == METADATA_VERSION or name in FEATURES:
        for who, levels in nodes:
            if level not in levels:
                only = "does not support this feature." if levels.max == 0 else f"only supports versions {levels}"
                return f"{who} {only}"
    else:
        return f"Local controller {s.node_id} does not support this feature."
    if s.state.metadata_version >= CONTROLLER_REGISTRATION_SINCE:
        for voter in s.voter_ids:
            if voter != s.node_id and voter not in controllers:
                return f"controller {voter} has not registered, and may not support this feature"
    return None


def _elr_safety_records(s: Situation) -> list[MetadataRecord]:
    """Eligible leaders are only safe when all brokers agree on the minimum of in-sync replicas: pin it for the
    cluster and drop what single brokers had."""
    records: list[MetadataRecord] = []
    if MIN_ISR not in s.state.cluster_configs():
        value = str(s.config.integer(MIN_ISR))
        records.append(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=value))
    for (kind, name), values in s.state.sections.configs.items():
        if kind == BROKER_RESOURCE and name and MIN_ISR in values:
            records.append(ConfigRecord(resource_type=kind, resource_name=name, name=MIN_ISR, value=None))
    return records
