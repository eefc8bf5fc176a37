package imagecmd

import (
	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

func newAlerts(a *inputs.Access) *cobra.Command {
	return &cobra.Command{
		Use: "alerts", Short: "Print alerts about boot images for the Prometheus operator", Args: cobra.NoArgs,
		Long: `Print a PrometheusRule with alerts for refused machines, images that are too old,
wrong declarations, images that another writer undoes, and outdated certificate
authorities. Its expressions use the metrics of refit's controller, which
Prometheus must scrape. Apply it: refit bootimage alerts | kubectl apply -f -`,
		RunE: func(*cobra.Command, []string) error {
			text, err := config.AlertsText()
			if err != nil {
				return err
			}
			_, err = a.Out.Write(text)
			return err
		},
	}
}
