package imagerefs

// CustomResource says which fields of custom resources are images.
type CustomResource struct {
	// Group of the API and the kinds in it.
	Group string
	Kinds []string
	// Paths of the fields: [] stands for the items of a list, * for every key. A field is a
	// reference, or a mapping with repository and tag.
	Paths []string
	// Doc defines the fields.
	Doc string
}

// Fields is the table of custom resources. Lists of containers are found in all kinds
// (RuleContainer), so they are not in it. A row needs a page that defines its fields.
var Fields = []CustomResource{
	{"monitoring.coreos.com", []string{"Prometheus", "PrometheusAgent", "Alertmanager", "ThanosRuler"}, []string{"spec.image", "spec.thanos.image"},
		"https://prometheus-operator.dev/docs/api-reference/api/"},
	{"postgresql.cnpg.io", []string{"Cluster"}, []string{"spec.imageName", "spec.postgresql.extensions[].image.reference"},
		"https://cloudnative-pg.io/documentation/current/cloudnative-pg.v1/"},
	{"postgresql.cnpg.io", []string{"ImageCatalog", "ClusterImageCatalog"}, []string{"spec.images[].image", "spec.images[].extensions[].image.reference"},
		"https://cloudnative-pg.io/documentation/current/image_catalog/"},
	{"tekton.dev", []string{"Task", "ClusterTask"}, under("spec.", tektonTask), "https://tekton.dev/docs/pipelines/tasks/"},
	{"tekton.dev", []string{"TaskRun"}, under("spec.taskSpec.", tektonTask), "https://tekton.dev/docs/pipelines/taskruns/"},
	{"tekton.dev", []string{"Pipeline"}, append(under("spec.tasks[].taskSpec.", tektonTask), under("spec.finally[].taskSpec.", tektonTask)...),
		"https://tekton.dev/docs/pipelines/pipelines/"},
	{"tekton.dev", []string{"PipelineRun"}, append(under("spec.pipelineSpec.tasks[].taskSpec.", tektonTask), under("spec.pipelineSpec.finally[].taskSpec.", tektonTask)...),
		"https://tekton.dev/docs/pipelines/pipelineruns/"},
	{"tekton.dev", []string{"StepAction"}, []string{"spec.image"}, "https://tekton.dev/docs/pipelines/stepactions/"},
	{"argoproj.io", []string{"Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate"}, argoWorkflow("spec."), "https://argo-workflows.readthedocs.io/en/latest/fields/"},
	{"argoproj.io", []string{"CronWorkflow"}, argoWorkflow("spec.workflowSpec."), "https://argo-workflows.readthedocs.io/en/latest/fields/"},
	{"kubevirt.io", []string{"VirtualMachineInstance"}, under("spec.", kubeVirtMachine), "https://kubevirt.io/api-reference/main/definitions.html"},
	{"kubevirt.io", []string{"VirtualMachine", "VirtualMachineInstanceReplicaSet"},
		append(under("spec.template.spec.", kubeVirtMachine), "spec.dataVolumeTemplates[].spec.source.registry.url"), "https://kubevirt.io/api-reference/main/definitions.html"},
	{"pool.kubevirt.io", []string{"VirtualMachinePool"},
		append(under("spec.virtualMachineTemplate.spec.template.spec.", kubeVirtMachine), "spec.virtualMachineTemplate.spec.dataVolumeTemplates[].spec.source.registry.url"),
		"https://kubevirt.io/user-guide/user_workloads/pool/"},
	{"cdi.kubevirt.io", []string{"DataVolume"}, []string{"spec.source.registry.url"},
		"https://github.com/kubevirt/containerized-data-importer/blob/main/doc/image-from-registry.md"},
	{"cdi.kubevirt.io", []string{"DataImportCron"}, []string{"spec.template.spec.source.registry.url"},
		"https://github.com/kubevirt/containerized-data-importer/blob/main/doc/os-image-poll-and-update.md"},
	{"kafka.strimzi.io", []string{"Kafka"}, []string{"spec.kafka.image", "spec.zookeeper.image", "spec.entityOperator.topicOperator.image",
		"spec.entityOperator.userOperator.image", "spec.entityOperator.tlsSidecar.image", "spec.cruiseControl.image", "spec.kafkaExporter.image"},
		"https://strimzi.io/docs/operators/latest/configuring"},
	{"kafka.strimzi.io", []string{"KafkaConnect", "KafkaBridge", "KafkaMirrorMaker2"}, []string{"spec.image"}, "https://strimzi.io/docs/operators/latest/configuring"},
	{"operators.coreos.com", []string{"CatalogSource"}, []string{"spec.image"}, "https://olm.operatorframework.io/docs/concepts/crds/catalogsource/"},
	{"operators.coreos.com", []string{"ClusterServiceVersion"}, []string{"spec.relatedImages[].image", "metadata.annotations.containerImage"},
		"https://olm.operatorframework.io/docs/concepts/crds/clusterserviceversion/"},
	{"ceph.rook.io", []string{"CephCluster"}, []string{"spec.cephVersion.image"}, "https://rook.io/docs/rook/latest/CRDs/Cluster/ceph-cluster-crd/"},
	{"elasticsearch.k8s.elastic.co", []string{"Elasticsearch"}, []string{"spec.image"}, elasticDoc},
	{"kibana.k8s.elastic.co", []string{"Kibana"}, []string{"spec.image"}, elasticDoc},
	{"beat.k8s.elastic.co", []string{"Beat"}, []string{"spec.image"}, elasticDoc},
	{"agent.k8s.elastic.co", []string{"Agent"}, []string{"spec.image"}, elasticDoc},
	{"logstash.k8s.elastic.co", []string{"Logstash"}, []string{"spec.image"}, elasticDoc},
	{"rabbitmq.com", []string{"RabbitmqCluster"}, []string{"spec.image"}, "https://www.rabbitmq.com/kubernetes/operator/using-operator"},
	{"opentelemetry.io", []string{"OpenTelemetryCollector"}, []string{"spec.image", "spec.targetAllocator.image"},
		"https://github.com/open-telemetry/opentelemetry-operator/blob/main/docs/api/opentelemetrycollectors.md"},
	{"opentelemetry.io", []string{"Instrumentation"}, []string{"spec.java.image", "spec.nodejs.image", "spec.python.image", "spec.dotnet.image", "spec.go.image",
		"spec.apacheHttpd.image", "spec.nginx.image"}, "https://github.com/open-telemetry/opentelemetry-operator/blob/main/docs/api/instrumentations.md"},
	{"pxc.percona.com", []string{"PerconaXtraDBCluster"}, []string{"spec.pxc.image", "spec.haproxy.image", "spec.proxysql.image", "spec.logcollector.image",
		"spec.pmm.image", "spec.backup.image", "spec.initContainer.image"}, "https://docs.percona.com/percona-operator-for-mysql/pxc/operator.html"},
	{"operator.victoriametrics.com", []string{"VMSingle", "VMAgent", "VMAlert", "VMAlertmanager", "VMAuth"}, []string{"spec.image"},
		"https://docs.victoriametrics.com/operator/api/"},
	{"operator.knative.dev", []string{"KnativeServing", "KnativeEventing"}, []string{"spec.registry.override.*"},
		"https://knative.dev/docs/install/operator/configuring-with-operator/"},
	{"pkg.crossplane.io", []string{"Provider", "Function", "Configuration"}, []string{"spec.package"}, "https://docs.crossplane.io/latest/packages/providers/"},
	{"sparkoperator.k8s.io", []string{"SparkApplication"}, []string{"spec.image", "spec.driver.image", "spec.executor.image"},
		"https://github.com/kubeflow/spark-operator/blob/master/docs/api-docs.md"},
	{"flink.apache.org", []string{"FlinkDeployment"}, []string{"spec.image"},
		"https://nightlies.apache.org/flink/flink-kubernetes-operator-docs-main/docs/custom-resource/reference/"},
	{"k8s.keycloak.org", []string{"Keycloak"}, []string{"spec.image"}, "https://www.keycloak.org/operator/customizing-keycloak"},
	{"longhorn.io", []string{"EngineImage"}, []string{"spec.image"}, "https://github.com/longhorn/longhorn-manager/blob/master/k8s/pkg/apis/longhorn/v1beta2/engineimage.go"},
}

const elasticDoc = "https://www.elastic.co/docs/reference/cloud-on-k8s"

var (
	tektonTask      = []string{"steps[].image", "sidecars[].image", "stepTemplate.image"}
	argoTemplate    = []string{"container.image", "script.image", "sidecars[].image"}
	kubeVirtMachine = []string{"volumes[].containerDisk.image", "domain.firmware.kernelBoot.container.image"}
)

// argoWorkflow has the templates of a workflow, also those that stand in its steps and tasks.
func argoWorkflow(prefix string) []string {
	var out []string
	for _, p := range []string{"templates[].", "templateDefaults.", "templates[].steps[][].inline.", "templates[].dag.tasks[].inline."} {
		out = append(out, under(prefix+p, argoTemplate)...)
	}
	return out
}

func under(prefix string, paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = prefix + p
	}
	return out
}
