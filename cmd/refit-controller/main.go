// Command refit-controller is the cluster half of refit.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/version"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "refit-controller:", err)
		os.Exit(1)
	}
}

func run() error {
	var o controller.Options
	flag.StringVar(&o.HealthAddress, "health-address", "127.0.0.1:7947", "host:port of /healthz and /readyz, 0 for none")
	flag.StringVar(&o.MetricsAddress, "metrics-address", "127.0.0.1:7948", "host:port of /metrics, 0 for none")
	flag.StringVar(&o.Identity, "identity", identity(), "identity in the leader election, the same after a restart")
	verbose := flag.Bool("verbose", false, "log decisions too")
	show := flag.Bool("version", false, "print the version and end")
	flag.Parse() // -kubeconfig comes from controller-runtime; without it the pod's own identity is used
	if *show {
		fmt.Println(version.Version())
		return nil
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	o.Log = logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	ctrl.SetLogger(o.Log)
	klog.SetLogger(o.Log)
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w; outside a pod name a file with -kubeconfig", err)
	}
	o.Config = cfg
	return controller.Run(ctrl.SetupSignalHandler(), o)
}

func identity() string {
	if n := os.Getenv("POD_NAME"); n != "" {
		return n
	}
	h, _ := os.Hostname()
	return h
}
