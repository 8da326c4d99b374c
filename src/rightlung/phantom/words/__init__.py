"""The words of made-up reports: templates, the phrase bank, places, lesions, devices and slips of the keys."""
