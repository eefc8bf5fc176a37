package azure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The AzureCluster chooses the addresses of the national cloud, and fills what the configuration
// leaves out.
func TestFromCluster(t *testing.T) {
	t.Parallel()
	const cluster = "apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: AzureCluster\nmetadata: {name: c1}\nspec: {subscriptionID: sub, location: chinaeast2, azureEnvironment: %s, resourceGroup: rg}\n"
	of := func(environment string) string { return strings.Replace(cluster, "%s", environment, 1) }
	for name, tc := range map[string]struct {
		file   string
		config Config
		// endpoint is the address that is asked, else err is why the cluster is refused.
		endpoint, err string
	}{
		"public":                 {of("AzurePublicCloud"), Config{}, "https://management.azure.com", ""},
		"none is public":         {of(`""`), Config{}, "https://management.azure.com", ""},
		"China":                  {of("AzureChinaCloud"), Config{}, "https://management.chinacloudapi.cn", ""},
		"US government":          {of("AzureUSGovernmentCloud"), Config{}, "https://management.usgovcloudapi.net", ""},
		"the same, said twice":   {of("AzureChinaCloud"), Config{Environment: "china", Subscription: "SUB", Location: "chinaeast2"}, "https://management.chinacloudapi.cn", ""},
		"another environment":    {of("AzureChinaCloud"), Config{Environment: "public"}, "", "azure.environment is public, AzureCluster c1 has china"},
		"another subscription":   {of("AzureChinaCloud"), Config{Subscription: "other"}, "", "azure.subscription is other, AzureCluster c1 has sub"},
		"Azure Stack":            {of("AzureStackCloud"), Config{}, "", "azureEnvironment AzureStackCloud, which refit-providers does not ask"},
		"another kind":           {strings.Replace(of("AzureChinaCloud"), "AzureCluster", "AWSCluster", 1), Config{}, "", `has kind "AWSCluster"`},
		"no YAML":                {"{", Config{}, "", "azure.azureCluster"},
		"without a location":     {"kind: AzureCluster\nspec: {subscriptionID: sub}\n", Config{}, "", "azure.location"},
		"the location is filled": {"kind: AzureCluster\nspec: {subscriptionID: sub}\n", Config{Location: "here"}, "https://management.azure.com", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := tc.config
			c.AzureCluster = filepath.Join(t.TempDir(), "cluster.yaml")
			if err := os.WriteFile(c.AzureCluster, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			err := c.FromCluster()
			if err == nil {
				err = c.Check()
			}
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, want %s", err, tc.err)
				}
				return
			}
			if err != nil || c.Subscription == "" || c.Location == "" || environments[c.Environment].endpoint != tc.endpoint {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
	if err := (&Config{AzureCluster: "/nowhere/cluster.yaml"}).FromCluster(); err == nil || !strings.Contains(err.Error(), "azure.azureCluster") {
		t.Error(err)
	}
	if err := (&Config{}).FromCluster(); err != nil {
		t.Error("without a file:", err)
	}
}
