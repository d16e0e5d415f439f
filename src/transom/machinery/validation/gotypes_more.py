"""More Go types for error messages: those of kinds other than pods and workloads. The rows are as
in `gotypes`.
"""

from __future__ import annotations

TABLE = {
    "apiextensions.CustomResourceDefinitionVersion": (
        "Name string, Served bool, Storage bool, Deprecated bool, DeprecationWarning *string, "
        "Schema *apiextensions.CustomResourceValidation, Subresources "
        "*apiextensions.CustomResourceSubresources, "
        "AdditionalPrinterColumns []apiextensions.CustomResourceColumnDefinition"
    ),
    "apiextensions.CustomResourceDefinitionVersion@selectable": (
        "Name string, Served bool, Storage bool, Deprecated bool, DeprecationWarning *string, "
        "Schema *apiextensions.CustomResourceValidation, Subresources "
        "*apiextensions.CustomResourceSubresources, "
        "AdditionalPrinterColumns []apiextensions.CustomResourceColumnDefinition, "
        "SelectableFields []apiextensions.SelectableField"
    ),
    "apiextensions.SelectableField": "JSONPath string",
    "apiextensions.CustomResourceColumnDefinition": (
        "Name string, Type string, Format string, Description string, Priority int32, "
        "JSONPath string"
    ),
    "apiextensions.JSONSchemaPropsOrArray": (
        "Schema *apiextensions.JSONSchemaProps, JSONSchemas=jsonSchemas "
        "[]apiextensions.JSONSchemaProps"
    ),
    "apiextensions.JSONSchemaProps": (
        "ID string, Schema=$schema apiextensions.JSONSchemaURL, Ref=$ref *string, "
        "Description string, Type string, "
        "Nullable bool, Format string, Title string, Default *apiextensions.JSON, Maximum "
        "*float64, "
        "ExclusiveMaximum bool, Minimum *float64, ExclusiveMinimum bool, MaxLength *int64, "
        "MinLength *int64, "
        "Pattern string, MaxItems *int64, MinItems *int64, UniqueItems bool, MultipleOf *float64, "
        "Enum []apiextensions.JSON, MaxProperties *int64, MinProperties *int64, Required []string, "
        "Items *apiextensions.JSONSchemaPropsOrArray, AllOf []apiextensions.JSONSchemaProps, "
        "OneOf []apiextensions.JSONSchemaProps, AnyOf []apiextensions.JSONSchemaProps, "
        "Not *apiextensions.JSONSchemaProps, Properties map[string]apiextensions.JSONSchemaProps, "
        "AdditionalProperties *apiextensions.JSONSchemaPropsOrBool, "
        "PatternProperties map[string]apiextensions.JSONSchemaProps, "
        "Dependencies apiextensions.JSONSchemaDependencies, AdditionalItems "
        "*apiextensions.JSONSchemaPropsOrBool, "
        "Definitions apiextensions.JSONSchemaDefinitions, ExternalDocs "
        "*apiextensions.ExternalDocumentation, "
        "Example *apiextensions.JSON, "
        "XPreserveUnknownFields=x-kubernetes-preserve-unknown-fields *bool, "
        "XEmbeddedResource=x-kubernetes-embedded-resource bool, "
        "XIntOrString=x-kubernetes-int-or-string bool, "
        "XListMapKeys=x-kubernetes-list-map-keys []string, XListType=x-kubernetes-list-type "
        "*string, "
        "XMapType=x-kubernetes-map-type *string"
    ),
    "authorization.NonResourceAttributes": "Path string, Verb string",
    "certificates.CertificateSigningRequestCondition": (
        "Type certificates.RequestConditionType, Status core.ConditionStatus, Reason string, "
        "Message string, "
        "LastUpdateTime v1.Time, LastTransitionTime v1.Time"
    ),
    "core.NodeAddress": "Type core.NodeAddressType, Address string",
    "core.NodeConfigSource": "ConfigMap *core.ConfigMapNodeConfigSource",
    "core.PersistentVolumeSource": (
        "GCEPersistentDisk *core.GCEPersistentDiskVolumeSource, "
        "AWSElasticBlockStore *core.AWSElasticBlockStoreVolumeSource, HostPath "
        "*core.HostPathVolumeSource, "
        "Glusterfs *core.GlusterfsPersistentVolumeSource, NFS *core.NFSVolumeSource, "
        "RBD *core.RBDPersistentVolumeSource, Quobyte *core.QuobyteVolumeSource, "
        "ISCSI *core.ISCSIPersistentVolumeSource, FlexVolume *core.FlexPersistentVolumeSource, "
        "Cinder *core.CinderPersistentVolumeSource, CephFS=cephfs "
        "*core.CephFSPersistentVolumeSource, "
        "FC *core.FCVolumeSource, Flocker *core.FlockerVolumeSource, AzureFile "
        "*core.AzureFilePersistentVolumeSource, "
        "VsphereVolume *core.VsphereVirtualDiskVolumeSource, AzureDisk "
        "*core.AzureDiskVolumeSource, "
        "PhotonPersistentDisk *core.PhotonPersistentDiskVolumeSource, PortworxVolume "
        "*core.PortworxVolumeSource, "
        "ScaleIO *core.ScaleIOPersistentVolumeSource, Local *core.LocalVolumeSource, "
        "StorageOS=storageos *core.StorageOSPersistentVolumeSource, CSI "
        "*core.CSIPersistentVolumeSource"
    ),
    "core.ScopeSelector": "MatchExpressions []core.ScopedResourceSelectorRequirement",
    "core.ScopedResourceSelectorRequirement": (
        "ScopeName core.ResourceQuotaScope, Operator core.ScopeSelectorOperator, Values []string"
    ),
    "core.ServicePort": (
        "Name string, Protocol core.Protocol, AppProtocol *string, Port int32, TargetPort "
        "intstr.IntOrString, "
        "NodePort int32"
    ),
    "core.Taint": "Key string, Value string, Effect core.TaintEffect, TimeAdded *v1.Time",
    "core.VolumeNodeAffinity": "Required *core.NodeSelector",
    "flowcontrol.FlowDistinguisherMethod": "Type flowcontrol.FlowDistinguisherMethodType",
    "flowcontrol.FlowSchemaSpec": (
        "PriorityLevelConfiguration flowcontrol.PriorityLevelConfigurationReference, "
        "MatchingPrecedence int32, "
        "DistinguisherMethod *flowcontrol.FlowDistinguisherMethod, Rules "
        "[]flowcontrol.PolicyRulesWithSubjects"
    ),
    "flowcontrol.NonResourcePolicyRule": "Verbs []string, NonResourceURLs []string",
    "flowcontrol.PolicyRulesWithSubjects": (
        "Subjects []flowcontrol.Subject, ResourceRules []flowcontrol.ResourcePolicyRule, "
        "NonResourceRules []flowcontrol.NonResourcePolicyRule"
    ),
    "flowcontrol.PriorityLevelConfigurationReference": "Name string",
    "flowcontrol.PriorityLevelConfigurationSpec": (
        "Type flowcontrol.PriorityLevelEnablement, Limited "
        "*flowcontrol.LimitedPriorityLevelConfiguration"
    ),
    "flowcontrol.ResourcePolicyRule": (
        "Verbs []string, APIGroups []string, Resources []string, ClusterScope bool, "
        "Namespaces []string"
    ),
    "flowcontrol.Subject": (
        "Kind flowcontrol.SubjectKind, User *flowcontrol.UserSubject, Group "
        "*flowcontrol.GroupSubject, "
        "ServiceAccount *flowcontrol.ServiceAccountSubject"
    ),
    "policy.IDRange": "Min int64, Max int64",
    "policy.PodDisruptionBudgetSpec": (
        "MinAvailable *intstr.IntOrString, Selector *v1.LabelSelector, MaxUnavailable "
        "*intstr.IntOrString"
    ),
    "rbac.RoleRef": "APIGroup string, Kind string, Name string",
    "storage.CSIDriverSpec": (
        "AttachRequired *bool, FSGroupPolicy *storage.FSGroupPolicy, PodInfoOnMount *bool, "
        "VolumeLifecycleModes []storage.VolumeLifecycleMode, StorageCapacity *bool, "
        "TokenRequests []storage.TokenRequest, RequiresRepublish *bool"
    ),
    "storage.CSINodeDriver": (
        "Name string, NodeID string, TopologyKeys []string, Allocatable "
        "*storage.VolumeNodeResources"
    ),
    "storage.TokenRequest": "Audience string, ExpirationSeconds *int64",
    "storage.VolumeAttachmentSource": "PersistentVolumeName *string, InlineVolumeSpec *core.PersistentVolumeSpec",
    "storage.VolumeAttachmentSpec": "Attacher string, Source storage.VolumeAttachmentSource, NodeName string",
}
