package controller

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// maxSharedLists is how many different lists are remembered. Thousands of nodes have a
// few; where there are more, sharing saves nothing.
const maxSharedLists = 512

// sharedLists gives equal lists of cached objects one memory: the steps of an update are
// the same on thousands of nodes. The cache's objects never change, so neither do the
// lists. For any number of goroutines; the zero value is empty.
type sharedLists[T any] struct {
	mu    sync.Mutex
	lists map[string][]T
	// recent are the lists that were shared last, by their length: most objects have the lists of the one
	// before, and a comparison needs no key.
	recent [8]atomic.Pointer[[]T]
}

// again returns the list of that length that was shared last, if it holds all that list holds.
func (s *sharedLists[T]) again(list []T, equal func(a, b T) bool) (shared []T, ok bool) {
	last := s.recent[len(list)%len(s.recent)].Load()
	if last == nil || !slices.EqualFunc(*last, list, equal) {
		return nil, false
	}
	return *last, true
}

// share returns the remembered list of this key, which holds all that list holds.
func (s *sharedLists[T]) share(key string, list []T) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.lists[key]; ok {
		s.recent[len(known)%len(s.recent)].Store(&known)
		return known
	}
	if s.lists == nil || len(s.lists) >= maxSharedLists { // of updates that are over, most of them
		s.lists = map[string][]T{}
	}
	list = slices.Clip(list)
	s.lists[key] = list
	s.recent[len(list)%len(s.recent)].Store(&list)
	return list
}

var (
	sharedTexts sharedLists[string]
	sharedSteps sharedLists[v1alpha1.UpdateStep]
)

// shareTexts makes a list of texts share its memory with the equal lists.
func shareTexts(list *[]string) {
	if len(*list) == 0 {
		return
	}
	if last, ok := sharedTexts.again(*list, func(a, b string) bool { return a == b }); ok {
		*list = last
		return
	}
	var key strings.Builder
	for _, text := range *list {
		addToKey(&key, text)
	}
	*list = sharedTexts.share(key.String(), *list)
}

// shareSteps does the same for the steps of a node's run.
func shareSteps(list *[]v1alpha1.UpdateStep) {
	if len(*list) == 0 {
		return
	}
	if last, ok := sharedSteps.again(*list, sameStep); ok {
		*list = last
		return
	}
	var key strings.Builder
	for i := range *list {
		s := &(*list)[i]
		addToKey(&key, s.ID, s.Updater, s.Verb, s.From, s.To, strconv.Itoa(int(s.DeadlineSeconds)), strconv.Itoa(len(s.Params)))
		for _, name := range slices.Sorted(maps.Keys(s.Params)) {
			addToKey(&key, name, s.Params[name])
		}
	}
	*list = sharedSteps.share(key.String(), *list)
}

func sameStep(a, b v1alpha1.UpdateStep) bool {
	return a.ID == b.ID && a.Updater == b.Updater && a.Verb == b.Verb && a.From == b.From && a.To == b.To && a.DeadlineSeconds == b.DeadlineSeconds && maps.Equal(a.Params, b.Params)
}

// addToKey adds texts with their lengths, so that no two lists have the same key.
func addToKey(key *strings.Builder, texts ...string) {
	for _, text := range texts {
		key.WriteString(strconv.Itoa(len(text)))
		key.WriteByte(':')
		key.WriteString(text)
	}
}
