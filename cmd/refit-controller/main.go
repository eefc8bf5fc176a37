// Command refit-controller is the cluster half of refit.
package main

import (
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	_ "time/tzdata" // windows have time zones; the image holds nothing but refit

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/render/clean"
	"github.com/refit-dev/refit/internal/version"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "refit-controller:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := tellClientLibrary(); err != nil {
		return err
	}
	var o controller.Options
	flag.StringVar(&o.HealthAddress, "health-address", net.JoinHostPort("127.0.0.1", strconv.Itoa(model.PortHealth)), "host:port of /healthz and /readyz, 0 for none")
	flag.StringVar(&o.MetricsAddress, "metrics-address", net.JoinHostPort("127.0.0.1", strconv.Itoa(model.PortMetrics)), "host:port of /metrics, 0 for none")
	flag.StringVar(&o.ProfileAddress, "profile-address", "0", "host:port of Go's profiler, 0 for none")
	flag.StringVar(&o.Identity, "identity", identity(), "identity in the leader election, unique per process (default the pod's name; outside a pod the host's name and a random part)")
	flag.StringVar(&o.ClusterAPI.Address, "cluster-api-address", "", "host:port on which Cluster API's in-place update hooks are answered (HTTPS); empty for none")
	flag.Func("cluster-api-name", "DNS name or address under which Cluster API reaches -cluster-api-address, may be repeated (default refit-cluster-api.refit-system.svc)",
		func(v string) error { o.ClusterAPI.Names = append(o.ClusterAPI.Names, v); return nil })
	flag.StringVar(&o.ClusterAPI.ClientCA, "cluster-api-client-ca", "", "file with the CA certificates of Cluster API's client certificates; required with -cluster-api-address")
	flag.StringVar(&o.Joins.Address, "join-address", "", "host:port on which machines that join fetch their first-boot configuration (HTTPS); empty for none")
	flag.Func("join-name", "DNS name or address under which machines reach -join-address, may be repeated", func(name string) error {
		o.Joins.Names = append(o.Joins.Names, name)
		return nil
	})
	flag.Func("local-registry", "HOST or HOST:PORT of an image registry on this machine or link, may be repeated; no other loopback, link-local or metadata address is asked",
		func(v string) error { o.LocalRegistries = append(o.LocalRegistries, v); return nil })
	flag.Func("local-server", "HOST or HOST:PORT of a boot stream, an external updater or a workload cluster's API server on this machine or link, may be repeated; no other such address is connected to",
		func(v string) error { o.LocalServers = append(o.LocalServers, v); return nil })
	flag.Int64Var(&o.Bandwidth.Node, "node-bandwidth", 0, "bytes a second that a node may send to other nodes, and as many it may take of them; 0 for no limit")
	flag.Int64Var(&o.Bandwidth.Site, "site-bandwidth", 0, "bytes a second that all nodes together may send to each other, divided evenly; 0 for no limit")
	flag.Func("without", "areas that are not installed, separated by commas, whose controllers do not start: "+strings.Join(areas.Names(), ", ")+" (as refit install --without)",
		func(v string) (err error) { o.Without, err = areas.Parse(strings.Split(v, ",")); return err })
	verbose := flag.Bool("verbose", false, "log decisions too")
	show := flag.Bool("version", false, "print the version and end")
	flag.Parse() // -kubeconfig comes from controller-runtime; without it the pod's own identity is used
	if *show {
		fmt.Println(version.Version())
		return nil
	}
	if len(o.ClusterAPI.Names) == 0 {
		o.ClusterAPI.Names = []string{"refit-cluster-api." + v1alpha1.SystemNamespace + ".svc"}
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	o.Log = logr.FromSlogHandler(slog.NewJSONHandler(clean.Writer(os.Stderr), &slog.HandlerOptions{Level: level}))
	ctrl.SetLogger(o.Log)
	klog.SetLogger(o.Log)
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w; outside a pod name a file with -kubeconfig", err)
	}
	o.Config = cfg
	return controller.Run(ctrl.SetupSignalHandler(), o)
}

// clientLibrary is what the client library can be told by environment variables only,
// unless somebody has told it already:
//   - to ask after 3 silent seconds whether the API server's connection still lives,
//     instead of after 30: behind a service address, an API server that was replaced is
//     not told from a silent one;
//   - to read what is there at the start as lists, not as one event for each object:
//     thirty thousand NodeUpdates took 2.8 s of processor time instead of 6.1.
var clientLibrary = map[string]string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "3", "HTTP2_PING_TIMEOUT_SECONDS": "2",
	"KUBE_FEATURE_WatchListClient": "false",
}

func tellClientLibrary() error {
	for name, value := range clientLibrary {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// identity in the leader election: a pod's name, which its container keeps over a
// restart. Outside a pod two may run on one host, so each process has its own.
func identity() string {
	if n := os.Getenv("POD_NAME"); n != "" {
		return n
	}
	h, _ := os.Hostname()
	return h + "_" + rand.Text()
}
