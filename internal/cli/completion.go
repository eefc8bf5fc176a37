package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

// completionTimeout bounds a completion: a shell waits for it at every Tab.
const completionTimeout = 3 * time.Second

// completed are the words of usage lines that stand for the name of an object.
var completed = map[string]func() client.ObjectList{
	"UPDATE": func() client.ObjectList { return &v1alpha1.ClusterUpdateList{} },
	"BUNDLE": func() client.ObjectList { return &v1alpha1.BundleList{} },
	"NODE":   func() client.ObjectList { return &corev1.NodeList{} },
	"TRACK":  func() client.ObjectList { return &v1alpha1.ImageTrackList{} },
	"POOL":   func() client.ObjectList { return &v1alpha1.UpdatePoolList{} },
	"STREAM": func() client.ObjectList { return &v1alpha1.BootImageStreamList{} },
}

// completedFlags are flags of commands that name an object, by the path of the command
// below the root.
var completedFlags = map[string]map[string]string{
	"plan": {"to": "BUNDLE"}, "rollback": {"to": "BUNDLE", "pool": "POOL"}, "retry": {"node": "NODE"}, "accept": {"update": "UPDATE"},
	"drill": {"node": "NODE"}, "tags check": {"node": "NODE"}, "bootimage image": {"stream": "STREAM"},
}

// completeNames makes a shell complete the names of the cluster's objects, wherever the
// usage of a command asks for one.
func completeNames(root *cobra.Command, a *inputs.Access) {
	for _, c := range commandsBelow(root) {
		for flag, word := range completedFlags[strings.TrimPrefix(c.CommandPath(), root.CommandPath()+" ")] {
			_ = c.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				return namesOf(cmd.Context(), a, word, typed), cobra.ShellCompDirectiveDefault // --to may name a file
			})
		}
		words := argumentWords(c.Use)
		if !slices.ContainsFunc(words, func(w string) bool { return w != "" }) || c.ValidArgsFunction != nil || c.ValidArgs != nil {
			continue
		}
		c.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) >= len(words) || words[len(args)] == "" {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return namesOf(cmd.Context(), a, words[len(args)], typed), cobra.ShellCompDirectiveNoFileComp
		}
	}
}

func commandsBelow(c *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, sub := range c.Commands() {
		out = append(append(out, sub), commandsBelow(sub)...)
	}
	return out
}

// argumentWords returns, for each argument in a usage line, the word of completed that it
// asks for; empty if it asks for something else.
func argumentWords(use string) []string {
	var out []string
	for _, argument := range strings.Fields(use)[1:] {
		argument = strings.Trim(argument, "[]")
		if strings.HasPrefix(argument, "-") || strings.HasPrefix(argument, "(") {
			break // flags follow the arguments
		}
		word := ""
		for _, one := range strings.Split(argument, "|") {
			if completed[one] != nil {
				word = one
			}
		}
		out = append(out, word)
	}
	return out
}

// namesOf lists the names that begin as typed, of the objects that a word stands for. It
// returns none if the API server does not answer: a completion has no place for an error.
func namesOf(ctx context.Context, a *inputs.Access, word, typed string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	names := make(chan []string, 1)
	go func() { names <- listNames(ctx, a, completed[word](), typed) }()
	select {
	case found := <-names:
		return found
	case <-ctx.Done(): // discovery does not know ctx; the process ends soon
		return nil
	}
}

func listNames(ctx context.Context, a *inputs.Access, list client.ObjectList, typed string) (names []string) {
	c, err := a.Client()
	if err != nil {
		return nil
	}
	if err := c.List(ctx, list); err != nil {
		return nil
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		if named, ok := o.(client.Object); ok && strings.HasPrefix(named.GetName(), typed) {
			names = append(names, named.GetName())
		}
		return nil
	})
	return names
}
