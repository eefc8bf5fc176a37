package machineobjects

import (
	"context"
	"strings"

	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
)

// annotationCloned is set by Cluster API on objects that it clones from a template.
const annotationCloned = "cluster.x-k8s.io/cloned-from-name"

// Referenced returns the templates that a manager refers to or a machine was cloned from.
func (k *Kinds) Referenced(ctx context.Context, table *machinekinds.Table, templates []*machinekinds.ImageKind) (map[string]bool, error) {
	out := map[string]bool{}
	for i := range table.Managers {
		m := &table.Managers[i]
		if len(m.Template) == 0 {
			continue
		}
		l := k.List(ctx, m.Group, m.Kind, m.Versions)
		if l.Err != nil {
			return nil, l.Err
		}
		for _, o := range l.Items {
			for _, at := range m.Template {
				if name := machinekinds.Lookup(o.Object, at+".name"); name != "" {
					out[machinekinds.Lookup(o.Object, at+".kind")+"/"+o.GetNamespace()+"/"+name] = true
				}
			}
		}
	}
	for _, t := range templates {
		l := k.List(ctx, t.Group, strings.TrimSuffix(t.Kind, "Template"), t.Versions)
		if l.Err != nil {
			return nil, l.Err
		}
		for _, o := range l.Items {
			if name := o.GetAnnotations()[annotationCloned]; name != "" {
				out[t.Kind+"/"+o.GetNamespace()+"/"+name] = true
			}
		}
	}
	return out, nil
}
