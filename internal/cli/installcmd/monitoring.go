package installcmd

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

// Formats of `refit monitoring`.
const (
	formatOperator  = "operator"
	formatRules     = "rules"
	formatDashboard = "dashboard"
)

// NewMonitoring is the command `refit monitoring`.
func NewMonitoring(a *inputs.Access) *cobra.Command {
	format := formatOperator
	c := &cobra.Command{
		Use:   "monitoring",
		Short: "Print alerts, scrape configuration and dashboard for Prometheus and Grafana",
		Long: `Print what a site adds to its monitoring. Nothing is applied.

Formats:
  operator   ServiceMonitor and PrometheusRules for the Prometheus operator
  rules      the alerts as a rule file for Prometheus without its operator
  dashboard  the dashboard for Grafana, as JSON

Prometheus needs the ClusterRole refit-metrics-reader.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := monitoringText(format)
			if err != nil {
				return err
			}
			_, err = a.Out.Write(text)
			return err
		},
	}
	c.Flags().StringVar(&format, "format", format, "operator, rules or dashboard")
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{formatOperator, formatRules, formatDashboard}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func monitoringText(format string) ([]byte, error) {
	switch format {
	case formatOperator:
		return config.MonitoringText()
	case formatRules:
		return ruleFile()
	case formatDashboard:
		return config.Dashboard()
	}
	return nil, console.UsageError(fmt.Errorf("--format %s is not known: use operator, rules or dashboard", format))
}

// ruleFile has the groups of all PrometheusRules.
func ruleFile() ([]byte, error) {
	objects, err := config.Alerts()
	if err != nil {
		return nil, err
	}
	var groups []any
	for _, o := range objects {
		spec, ok := o.Object["spec"].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("internal: %s has no spec", o.GetName())
		}
		some, ok := spec["groups"].([]any)
		if !ok {
			return nil, fmt.Errorf("internal: %s has no groups", o.GetName())
		}
		groups = append(groups, some...)
	}
	text, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		return nil, fmt.Errorf("internal: write the rules: %w", err)
	}
	return text, nil
}
