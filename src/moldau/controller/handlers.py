"""Which function decides which request, and how a request is answered when it cannot be decided at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from moldau.controller import (
    acls,
    alter_partition,
    brokers,
    configs,
    credentials,
    directories,
    elections,
    features,
    producer_ids,
    quotas,
    reassignments,
    topics,
)
from moldau.controller.decision import Decide, Refuse
from moldau.protocol.errors import ApiError
from moldau.protocol.generated.wire.allocate_producer_ids_request import AllocateProducerIdsRequest
from moldau.protocol.generated.wire.allocate_producer_ids_response import AllocateProducerIdsResponse
from moldau.protocol.generated.wire.alter_client_quotas_request import AlterClientQuotasRequest
from moldau.protocol.generated.wire.alter_configs_request import AlterConfigsRequest
from moldau.protocol.generated.wire.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from moldau.protocol.generated.wire.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from moldau.protocol.generated.wire.alter_partition_request import AlterPartitionRequest
from moldau.protocol.generated.wire.alter_partition_response import AlterPartitionResponse
from moldau.protocol.generated.wire.alter_user_scram_credentials_request import AlterUserScramCredentialsRequest
from moldau.protocol.generated.wire.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from moldau.protocol.generated.wire.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from moldau.protocol.generated.wire.broker_heartbeat_request import BrokerHeartbeatRequest
from moldau.protocol.generated.wire.broker_heartbeat_response import BrokerHeartbeatResponse
from moldau.protocol.generated.wire.broker_registration_request import BrokerRegistrationRequest
from moldau.protocol.generated.wire.broker_registration_response import BrokerRegistrationResponse
from moldau.protocol.generated.wire.controller_registration_request import ControllerRegistrationRequest
from moldau.protocol.generated.wire.controller_registration_response import ControllerRegistrationResponse
from moldau.protocol.generated.wire.create_acls_request import CreateAclsRequest
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest
from moldau.protocol.generated.wire.create_topics_request import CreateTopicsRequest
from moldau.protocol.generated.wire.delete_acls_request import DeleteAclsRequest
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest
from moldau.protocol.generated.wire.elect_leaders_request import ElectLeadersRequest
from moldau.protocol.generated.wire.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from moldau.protocol.generated.wire.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from moldau.protocol.generated.wire.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from moldau.protocol.generated.wire.unregister_broker_request import UnregisterBrokerRequest
from moldau.protocol.generated.wire.unregister_broker_response import UnregisterBrokerResponse
from moldau.protocol.generated.wire.update_features_request import UpdateFeaturesRequest
from moldau.protocol.generated.wire.update_features_response import UpdateFeaturesResponse
from moldau.protocol.wire import WireMessage


class Handler(NamedTuple):
    decide: Decide
    refuse: Refuse


def _with_error(response_class: type[WireMessage]) -> Refuse:
    """For responses that have one error code for the whole request, and perhaps a message beside it."""

    def refuse(_request: Any, error: ApiError) -> WireMessage:
        response: Any = response_class()
        response.error_code = error.code
        if hasattr(response, "error_message"):
            response.error_message = error.message
        return response  # type: ignore[no-any-return]

    return refuse


HANDLERS: Final[Mapping[type, Handler]] = {
    AllocateProducerIdsRequest: Handler(producer_ids.allocate_producer_ids, _with_error(AllocateProducerIdsResponse)),
    AlterClientQuotasRequest: Handler(quotas.alter_client_quotas, quotas.refuse_alter_client_quotas),
    AlterConfigsRequest: Handler(configs.alter_configs, configs.refuse_alter_configs),
    AlterPartitionReassignmentsRequest: Handler(
        reassignments.alter_partition_reassignments, _with_error(AlterPartitionReassignmentsResponse)
    ),
    AlterPartitionRequest: Handler(alter_partition.alter_partition, _with_error(AlterPartitionResponse)),
    AlterUserScramCredentialsRequest: Handler(
        credentials.alter_user_scram_credentials, credentials.refuse_alter_user_scram_credentials
    ),
    AssignReplicasToDirsRequest: Handler(
        directories.assign_replicas_to_dirs, _with_error(AssignReplicasToDirsResponse)
    ),
    BrokerHeartbeatRequest: Handler(brokers.heartbeat, _with_error(BrokerHeartbeatResponse)),
    BrokerRegistrationRequest: Handler(brokers.register_broker, _with_error(BrokerRegistrationResponse)),
    ControllerRegistrationRequest: Handler(brokers.register_controller, _with_error(ControllerRegistrationResponse)),
    CreateAclsRequest: Handler(acls.create_acls, acls.refuse_create_acls),
    CreatePartitionsRequest: Handler(topics.create_partitions, topics.refuse_create_partitions),
    CreateTopicsRequest: Handler(topics.create_topics, topics.refuse_create_topics),
    DeleteAclsRequest: Handler(acls.delete_acls, acls.refuse_delete_acls),
    DeleteTopicsRequest: Handler(topics.delete_topics, topics.refuse_delete_topics),
    ElectLeadersRequest: Handler(elections.elect_leaders, elections.refuse_elect_leaders),
    IncrementalAlterConfigsRequest: Handler(
        configs.incremental_alter_configs, configs.refuse_incremental_alter_configs
    ),
    ListPartitionReassignmentsRequest: Handler(
        reassignments.list_partition_reassignments, _with_error(ListPartitionReassignmentsResponse)
    ),
    UnregisterBrokerRequest: Handler(brokers.unregister_broker, _with_error(UnregisterBrokerResponse)),
    UpdateFeaturesRequest: Handler(features.update_features, _with_error(UpdateFeaturesResponse)),
}
