package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestEveryItemIsTriedOnceAndFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[int]int{}
		now, most := 0, 0
		err := ForEach(context.Background(), numbers(100), func(i int) error {
			mu.Lock()
			seen[i]++
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			if i%2 == 1 {
				return fmt.Errorf("item %d is odd", i)
			}
			return nil
		})
		if most != MaxParallel {
			t.Errorf("%d at once", most)
		}
		if len(seen) != 100 {
			t.Errorf("%d items were tried", len(seen))
		}
		for i, n := range seen {
			if n != 1 {
				t.Errorf("item %d was tried %d times", i, n)
			}
		}
		if err == nil || strings.Count(err.Error(), "is odd") != maxErrors || !strings.Contains(err.Error(), "and 45 more of the kind") {
			t.Errorf("fifty failures are reported as: %v", err)
		}
	})
}

func TestNothingBeginsAfterTheEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	tried := 0
	var mu sync.Mutex
	err := ForEach(ctx, numbers(1000), func(int) error {
		mu.Lock()
		defer mu.Unlock()
		tried++
		cancel()
		return nil
	})
	if tried > MaxParallel || !errors.Is(err, context.Canceled) {
		t.Errorf("%d were tried after the end: %v", tried, err)
	}
	if ForEach(ctx, nil, func(int) error { return errors.New("never") }) != nil {
		t.Error("no items is no failure")
	}
}
