package storetest

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/go-timingwheel/timingwheel/jobqueue/store"
)

// moment is a call that begins and returns at the times given.
func moment(from, to int64, c call, a answer) porcupine.Operation {
	c.queue = "queue"
	return porcupine.Operation{Input: c, Output: a, Call: from, Return: to}
}

var (
	notFound  = answer{err: store.ErrNotFound.Error()}
	leaseLost = answer{err: store.ErrLeaseLost.Error()}
	addA      = call{what: "add", body: "a"}
	claims    = call{what: "claim"}
	cancels   = call{what: "cancel"}
	gotA      = answer{id: 1, token: 7, body: "a", attempts: 1}
	ackA      = call{what: "finish", id: 1, token: 7}
)

func TestLinearizableHistories(t *testing.T) {
	for name, history := range map[string][]porcupine.Operation{
		"one after the other": {
			moment(1, 2, addA, answer{id: 1}),
			moment(3, 4, claims, gotA),
			moment(5, 6, ackA, answer{}),
			moment(7, 8, cancels, notFound),
		},
		"a claim that was first": {
			moment(1, 2, addA, answer{id: 1}),
			moment(3, 6, cancels, answer{id: 1, running: true}),
			moment(4, 5, claims, gotA),
			moment(7, 8, ackA, leaseLost),
		},
		"a cancel that was first": {
			moment(1, 2, addA, answer{id: 1}),
			moment(3, 6, claims, answer{}),
			moment(4, 5, cancels, answer{id: 1}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, porcupine.CheckOperations(keyModel, history))
		})
	}
}

func TestHistoriesThatAreNotLinearizable(t *testing.T) {
	for name, history := range map[string][]porcupine.Operation{
		"a job that is not there yet": {
			moment(1, 2, claims, gotA),
			moment(3, 4, addA, answer{id: 1}),
		},
		"a claim after a cancel": {
			moment(1, 2, addA, answer{id: 1}),
			moment(3, 4, cancels, answer{id: 1}),
			moment(5, 6, claims, gotA),
		},
		"both win": {
			moment(1, 2, addA, answer{id: 1}),
			moment(3, 6, cancels, answer{id: 1}),
			moment(4, 5, claims, gotA),
		},
		"claimed twice": {
			moment(1, 2, addA, answer{id: 1}),
			moment(3, 6, claims, gotA),
			moment(4, 5, claims, answer{id: 1, token: 8, body: "a", attempts: 2}),
		},
		"a stale token": {
			moment(1, 2, addA, answer{id: 1}),
			moment(3, 4, call{what: "claim", brief: true}, gotA),
			moment(5, 6, claims, answer{id: 1, token: 8, body: "a", attempts: 2}),
			moment(7, 8, ackA, answer{}),
		},
		"two live jobs": {
			moment(1, 4, call{what: "add", body: "a", on: store.Fail}, answer{id: 1}),
			moment(2, 3, call{what: "add", body: "b", on: store.Fail}, answer{id: 2}),
		},
		"an old body": {
			moment(1, 2, addA, answer{id: 1}),
			moment(3, 4, call{what: "update", body: "b"}, answer{}),
			moment(5, 6, claims, gotA),
		},
		"early": {
			moment(1, 2, call{what: "add", body: "a", later: true}, answer{id: 1}),
			moment(3, 4, claims, gotA),
		},
		"an attempt that is not counted": {
			moment(1, 2, addA, answer{id: 1}),
			moment(3, 4, call{what: "claim", brief: true}, gotA),
			moment(5, 6, claims, answer{id: 1, token: 8, body: "a", attempts: 1}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.False(t, porcupine.CheckOperations(keyModel, history))
		})
	}
}

// TestHistoriesOfMutants records histories of stores with faults.
func TestHistoriesOfMutants(t *testing.T) {
	for _, name := range []string{
		"any token will do", "Cancel does not say that a job runs", "always Keep",
		"Cancel does nothing", "Snooze counts", "attempts are counted after delivery",
		"Update does nothing", "no Add is kept", "Reschedule refuses nothing",
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				history := record(t, mutantConfig(name), seed)
				if porcupine.CheckOperationsTimeout(keyModel, history,
					time.Minute) == porcupine.Illegal {
					return
				}
			}
			t.Error("no history was refused")
		})
	}
}
