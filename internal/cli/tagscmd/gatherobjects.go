package tagscmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert/auditfacts"
	"github.com/refit-dev/refit/internal/imagetag/publish"
	"github.com/refit-dev/refit/internal/model"
)

// pageSize is how many objects one request lists.
const pageSize = 500

// gatherObjects reads the objects of the cluster, or of a dump of it (- is standard input);
// with kubelets it reads the configuration of every kubelet too.
func gatherObjects(ctx context.Context, a *inputs.Access, dump string, kubelets bool) (auditfacts.Objects, error) {
	if dump != "" {
		return readDump(dump)
	}
	cl, err := a.Client()
	if err != nil {
		return auditfacts.Objects{}, err
	}
	o, err := readCluster(ctx, a, cl)
	if err == nil && kubelets {
		readKubeletConfigs(ctx, a, &o)
	}
	return o, err
}

func readDump(file string) (auditfacts.Objects, error) {
	in := io.Reader(os.Stdin)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return auditfacts.Objects{}, console.UsageError(err)
		}
		defer f.Close()
		in = f
	}
	o, err := auditfacts.ReadDump(bufio.NewReaderSize(in, 1<<20))
	if err != nil {
		return o, console.UsageError(fmt.Errorf("dump %s: %w", file, err))
	}
	if len(o.Nodes) == 0 {
		return o, console.UsageErrorf("dump %s: it has no nodes: kubectl get nodes,pods,nodeupdates.refit.dev,contents.refit.dev,imagetracks.refit.dev,deployments,daemonsets,statefulsets,cronjobs,poddisruptionbudgets -A -o json", file)
	}
	return o, nil
}

// readCluster reads the cluster; it skips and reports missing or forbidden kinds.
func readCluster(ctx context.Context, a *inputs.Access, c client.Client) (auditfacts.Objects, error) {
	var o auditfacts.Objects
	lists := []func() (string, error){
		func() (string, error) {
			return "nodes", listPages(ctx, c, &corev1.NodeList{}, func(l *corev1.NodeList) { o.Nodes = append(o.Nodes, l.Items...) })
		},
		func() (string, error) {
			return "pods", listPages(ctx, c, &corev1.PodList{}, func(l *corev1.PodList) { o.Pods = append(o.Pods, l.Items...) })
		},
		func() (string, error) {
			return "nodeupdates", listPages(ctx, c, &v1alpha1.NodeUpdateList{}, func(l *v1alpha1.NodeUpdateList) { o.NodeUpdates = append(o.NodeUpdates, l.Items...) })
		},
		func() (string, error) {
			return "imagetracks", listPages(ctx, c, &v1alpha1.ImageTrackList{}, func(l *v1alpha1.ImageTrackList) { o.Tracks = append(o.Tracks, l.Items...) })
		},
		func() (string, error) {
			return "deployments", listPages(ctx, c, &appsv1.DeploymentList{}, func(l *appsv1.DeploymentList) { o.Deployments = append(o.Deployments, l.Items...) })
		},
		func() (string, error) {
			return "daemonsets", listPages(ctx, c, &appsv1.DaemonSetList{}, func(l *appsv1.DaemonSetList) { o.DaemonSets = append(o.DaemonSets, l.Items...) })
		},
		func() (string, error) {
			return "statefulsets", listPages(ctx, c, &appsv1.StatefulSetList{}, func(l *appsv1.StatefulSetList) { o.StatefulSet = append(o.StatefulSet, l.Items...) })
		},
		func() (string, error) {
			return "cronjobs", listPages(ctx, c, &batchv1.CronJobList{}, func(l *batchv1.CronJobList) { o.CronJobs = append(o.CronJobs, l.Items...) })
		},
		func() (string, error) {
			return "poddisruptionbudgets", listPages(ctx, c, &policyv1.PodDisruptionBudgetList{}, func(l *policyv1.PodDisruptionBudgetList) { o.Budgets = append(o.Budgets, l.Items...) })
		},
		func() (string, error) {
			return "mutatingwebhookconfigurations", listPages(ctx, c, &admissionv1.MutatingWebhookConfigurationList{}, func(l *admissionv1.MutatingWebhookConfigurationList) { o.Mutating = append(o.Mutating, l.Items...) })
		},
		func() (string, error) {
			return "validatingwebhookconfigurations", listPages(ctx, c, &admissionv1.ValidatingWebhookConfigurationList{}, func(l *admissionv1.ValidatingWebhookConfigurationList) {
				o.Validating = append(o.Validating, l.Items...)
			})
		},
	}
	for i, list := range lists {
		what, err := list()
		switch {
		case err == nil, meta.IsNoMatchError(err): // a cluster without refit has no such kind
		case i > 1 && apierrors.IsForbidden(err):
			a.Note("cannot list %s, results are without them: %v", what, err)
		default:
			return o, inputs.ListError(err)
		}
	}
	return o, readPinLists(ctx, a, c, &o)
}

// listPages lists a kind page by page.
func listPages[L client.ObjectList](ctx context.Context, c client.Client, l L, see func(L)) error {
	next := ""
	for {
		if err := c.List(ctx, l, client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		see(l)
		if next = l.GetContinue(); next == "" {
			return nil
		}
	}
}

// readPinLists reads the pin lists of nodes; most nodes share one.
func readPinLists(ctx context.Context, a *inputs.Access, c client.Client, o *auditfacts.Objects) error {
	seen := map[string]bool{"": true}
	for i := range o.NodeUpdates {
		name := o.NodeUpdates[i].Spec.Pins
		if seen[name] {
			continue
		}
		seen[name] = true
		var content v1alpha1.Content
		switch err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &content); {
		case err == nil:
			o.Contents = append(o.Contents, content)
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			a.Note("cannot read Content %s, a list of pinned images: %v", name, err)
		default:
			return inputs.ListError(err)
		}
	}
	return nil
}

// readKubeletConfigs reads the configuration of every kubelet, through the API server.
func readKubeletConfigs(ctx context.Context, a *inputs.Access, o *auditfacts.Objects) {
	o.Kubelets = map[string]auditfacts.Kubelet{}
	for i := range o.Nodes {
		name := o.Nodes[i].Name
		data, err := a.Raw(ctx, "/api/v1/nodes/"+name+"/proxy/configz")
		var said struct {
			Config *auditfacts.Kubelet `json:"kubeletconfig"`
		}
		if err == nil {
			err = json.Unmarshal(data, &said)
		}
		if err != nil || said.Config == nil {
			a.Note("cannot read the configuration of the kubelet on node %s: %v", name, err)
			continue
		}
		o.Kubelets[name] = *said.Config
	}
}

// addPublished adds answers of registries in the format of `refit tags plan`: one
// document per repository. It returns the schemes that the documents declare.
func addPublished(file string, o *auditfacts.Objects) (map[string]string, error) {
	schemes := map[string]string{}
	if file == "" {
		return schemes, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, console.UsageError(err)
	}
	defer f.Close()
	o.Published = map[string]model.Published{}
	d := json.NewDecoder(f)
	for {
		var p publish.Published
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return schemes, nil
		}
		if err == nil && p.Repository == "" {
			err = errors.New("a document without repository")
		}
		if err != nil {
			return nil, console.UsageError(fmt.Errorf("%s: %w", file, err))
		}
		if p.Scheme != "" {
			schemes[p.Repository] = p.Scheme
		}
		for tag, digest := range p.Tags {
			o.Published[p.Repository+":"+tag] = model.Published{Digest: digest, Same: p.Images[digest].Children, Version: p.Images[digest].Version, Gone: digest == "", By: "file"}
		}
	}
}
