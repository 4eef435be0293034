package doctor

// AlertFacts is what came of an alert that was tried.
type AlertFacts struct {
	Receiver string // without what is secret
	Off      string // why none was tried, empty where one was
	Error    string // what the receiver said, or what kept it from being told
	Lasts    bool   // it ends by itself after a minute
}

// Alert judges one receiver.
func Alert(f AlertFacts) Check {
	c := Check{Name: NameAlert, Status: OK, Found: f.Receiver + " took a test alert, and that it is over"}
	switch {
	case f.Off != "":
		c.Status, c.Found, c.Do = Off, f.Off, "name receivers in RSSWARDEN_ALERT, one URL a line, or a file that RSSWARDEN_CONFIG names"
	case f.Error != "":
		c.Status, c.Found, c.Do = Off, f.Receiver+": "+f.Error, "check the URL, and what the receiver is to know us by, in RSSWARDEN_ALERT"
	case f.Lasts:
		c.Found = f.Receiver + " took a test alert, RsswardenTest, which ends by itself after a minute; whom it notifies is its own route"
	}
	return c
}
