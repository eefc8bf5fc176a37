package inputs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/cli/console"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/distribution"
)

// RequestTimeout bounds one call: an API server that hangs while its etcd is
// replaced must not hang the command.
const RequestTimeout = 10 * time.Second

// Access names the API server and the writers: Out for results, Err for progress
// and hints.
type Access struct {
	Kubeconfig string
	Context    string
	// From is a support archive that Reader reads instead of a cluster.
	From string
	Out  io.Writer
	Err  io.Writer

	// said: the archive was introduced.
	said bool
}

// Note prints a hint for people.
func (o *Access) Note(format string, a ...any) {
	fmt.Fprintf(o.Err, format+"\n", a...)
}

// CurrentUser returns the name of the user who runs the command, for people who read it later.
func CurrentUser() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	name := strings.ToValidUTF8(u.Username, "")
	return name[:min(len(name), 128)]
}

// Config returns the access to the API server of the flags or the environment.
func (o *Access) Config() (*rest.Config, error) { return o.rest() }

func (o *Access) rest() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no kubeconfig found: %w; use --kubeconfig FILE or set KUBECONFIG; on a control-plane node the file is %s", err, distribution.KubeadmPlaces().AdminConfig)
	}
	cfg.Timeout = RequestTimeout
	cfg.QPS, cfg.Burst = 50, 100
	return cfg, nil
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // the kinds are compiled in
		}
	}
	return s
}

// Client returns a client for the API server of the flags or the environment.
func (o *Access) Client() (client.Client, error) {
	cfg, err := o.rest()
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme()})
	if err != nil {
		return nil, fmt.Errorf("cannot reach the API server %s: %w", cfg.Host, err)
	}
	return c, nil
}

// FromFlag adds --from to a command that only reads.
func (o *Access) FromFlag(f *pflag.FlagSet) {
	f.StringVar(&o.From, "from", "", "read FILE of refit support instead of a cluster")
}

// Reader reads the cluster, or a support archive with the time at which it was made.
func (o *Access) Reader() (client.Reader, time.Time, error) {
	if o.From == "" {
		c, err := o.Client()
		return c, time.Now(), err
	}
	s, err := OpenSupport(o.From)
	if err != nil {
		return nil, time.Time{}, err
	}
	if !o.said {
		o.said = true
		o.Note("as of %s, from %s of refit %s", s.CreatedAt.UTC().Format(time.RFC3339), o.From, s.Refit)
		for _, l := range s.LeftOut {
			o.Note("not in the archive: %s: %s", l.What, l.Why)
		}
	}
	return s.reader, s.CreatedAt, nil
}

// ListError explains a failed list: refit is not installed, or the API server is
// unavailable.
func ListError(err error) error {
	if console.ExitCode(err) == console.ExitBlocked { // an archive names its own gaps
		return err
	}
	var missing *meta.NoKindMatchError
	if errors.As(err, &missing) {
		if a, ok := areas.AreaOfKind(missing.GroupKind.Kind); ok {
			return console.WithExit(console.ExitBlocked, fmt.Errorf("kind %s is not installed in this cluster: run refit install, without --without %s if that left it out", missing.GroupKind.Kind, a.Name))
		}
	}
	if meta.IsNoMatchError(err) {
		return console.WithExit(console.ExitBlocked, errors.New("refit is not installed in this cluster: run refit install --from BUNDLE --ssh HOSTS"))
	}
	return fmt.Errorf("the API server did not answer: %w", err)
}

// Raw gets a path of the API server, for example a kubelet's configuration through
// the node's proxy.
func (o *Access) Raw(ctx context.Context, path string) ([]byte, error) {
	c, err := o.rawClient()
	if err != nil {
		return nil, err
	}
	return c.Get().AbsPath(path).DoRaw(ctx)
}

// PodLog gets the end of a container's log, at most so many bytes; previous is the log of the
// container that ended before.
func (o *Access) PodLog(ctx context.Context, namespace, pod, container string, previous bool, most int64) ([]byte, error) {
	c, err := o.rawClient()
	if err != nil {
		return nil, err
	}
	log, err := c.Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("log").
		Param("container", container).Param("previous", strconv.FormatBool(previous)).Param("tailLines", "20000").DoRaw(ctx)
	return log[max(0, int64(len(log))-most):], err
}

// ServerVersion is the version of the API server.
func (o *Access) ServerVersion(ctx context.Context) (string, error) {
	data, err := o.Raw(ctx, "/version")
	if err != nil {
		return "", fmt.Errorf("the API server did not answer: %w", err)
	}
	var v version.Info
	err = json.Unmarshal(data, &v)
	return v.GitVersion, err
}

// rawClient reaches paths of the API server.
func (o *Access) rawClient() (*rest.RESTClient, error) {
	cfg, err := o.rest()
	if err != nil {
		return nil, err
	}
	cfg.GroupVersion, cfg.NegotiatedSerializer = &schema.GroupVersion{Version: "v1"}, clientgoscheme.Codecs.WithoutConversion()
	cfg.APIPath = "/api"
	return rest.RESTClientFor(cfg)
}
