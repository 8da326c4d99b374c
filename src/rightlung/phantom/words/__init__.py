"""The words of synthetic reports: templates, phrase bank, places, lesions, devices and typing errors."""
