package report

// Finding is one judged property of the machine.
type Finding struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}
