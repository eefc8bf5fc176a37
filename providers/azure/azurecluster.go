package azure

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// clusterEnvironments are the values of spec.azureEnvironment of an AzureCluster. Azure Stack
// has an address and versions of the API of its own for each site.
var clusterEnvironments = map[string]string{
	"": "public", "AzurePublicCloud": "public", "AzureChinaCloud": "china", "AzureUSGovernmentCloud": "government", "AzureUSGovernment": "government",
}

// azureCluster is the part of an AzureCluster, of Cluster API's provider for Azure, that names
// the cloud.
type azureCluster struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		SubscriptionID string `json:"subscriptionID"`
		Location       string `json:"location"`
		Environment    string `json:"azureEnvironment"`
	} `json:"spec"`
}

// FromCluster fills subscription, location and environment from the AzureCluster in the file
// that the configuration names. What the configuration says differently is an error: one of
// them is about another cloud.
func (c *Config) FromCluster() error {
	if c.AzureCluster == "" {
		return nil
	}
	data, err := os.ReadFile(c.AzureCluster)
	if err != nil {
		return fmt.Errorf("azure.azureCluster: %w", err)
	}
	var a azureCluster
	if err := yaml.Unmarshal(data, &a); err != nil {
		return fmt.Errorf("azure.azureCluster: %s: %w", c.AzureCluster, err)
	}
	if a.Kind != "AzureCluster" {
		return fmt.Errorf("azure.azureCluster: %s has kind %q: write it with kubectl get azurecluster NAME -o yaml", c.AzureCluster, a.Kind)
	}
	environment, ok := clusterEnvironments[a.Spec.Environment]
	if !ok {
		return fmt.Errorf("azure.azureCluster: AzureCluster %s is of azureEnvironment %s, which refit-providers does not ask: known are AzurePublicCloud, AzureChinaCloud and AzureUSGovernmentCloud", a.Metadata.Name, a.Spec.Environment)
	}
	return errors.Join(fill(&c.Environment, "environment", environment, a.Metadata.Name), fill(&c.Subscription, "subscription", a.Spec.SubscriptionID, a.Metadata.Name),
		fill(&c.Location, "location", a.Spec.Location, a.Metadata.Name))
}

// fill sets a field that the configuration leaves out.
func fill(field *string, name, value, cluster string) error {
	if *field != "" && value != "" && !strings.EqualFold(*field, value) {
		return fmt.Errorf("azure.%s is %s, AzureCluster %s has %s: leave azure.%s out", name, *field, cluster, value, name)
	}
	if *field == "" {
		*field = value
	}
	return nil
}
