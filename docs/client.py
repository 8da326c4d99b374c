"""Ask a running `rightlung serve` where it sees a finding in every study, and how a swapped side changes the answer."""

import httpx

SERVER = "http://127.0.0.1:8800/api/v1/"

with httpx.Client(base_url=SERVER, timeout=60) as client:
    # With accounts: client.post("session/login", json={"name": …, "password": …}) after a first GET session.
    client.headers["X-CSRF-Token"] = client.get("session").json()["csrf"]
    for study in client.get("studies", params={"limit": 3}).json()["studies"]:
        question = {
            "study": study["key"],
            "phrases": ["Left pleural effusion."],
            "models": ["starter"],
            "perturb": {"kind": "swap-sides"},
        }
        response = client.post("ground", json=question)
        response.raise_for_status()
        answer = response.json()["answers"][0]
        plain, changed = answer["plain"], answer["perturbed"]["change"]
        print(
            f"{study['id']}: {plain['peak_side']}, abstention {plain['abstention']:.2f}, "
            f"map change {changed['total_variation']:.2f} when the words say right"
        )
